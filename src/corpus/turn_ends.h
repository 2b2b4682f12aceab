// The tokens with which a corpus' learnt turns end, for whoever lets the model that learnt them speak.
#pragma once

#include <string>
#include <vector>

#include "corpus/indexed.h"

namespace sluice::corpus {

struct TurnEnd {
  int64_t id = 0;
  std::string text;  // "<|im_end|>"
  bool operator==(const TurnEnd&) const = default;
};

// The special tokens that end the runs of learnt tokens (PREFIX.mask), blanks behind them left aside: those
// that end one in 20 or more of the documents looked at, which are 512 at most, spread evenly. Nothing
// without a mask. `tokenizer_json`: the corpus' tokenizer; InputError naming `name` for another kind of file.
std::vector<TurnEnd> turn_ends(const IndexedCorpus& corpus, const std::string& tokenizer_json,
                               const std::string& name);

}  // namespace sluice::corpus
