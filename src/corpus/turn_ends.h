// The tokens that end the learnt turns of a corpus: generation stops at them.
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

// The special tokens that end runs of learnt tokens (PREFIX.mask), blanks behind them left aside. Each ends a
// run in at least 1/20 of the sampled documents (at most 512, spread evenly). Empty without a mask.
// `tokenizer_json`: the corpus' tokenizer; InputError naming `name` for another kind of file.
std::vector<TurnEnd> turn_ends(const IndexedCorpus& corpus, const std::string& tokenizer_json,
                               const std::string& name);

}  // namespace sluice::corpus
