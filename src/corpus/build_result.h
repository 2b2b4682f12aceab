// What a build has made and counted; of a part of one it lies beside the corpus, as part.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/build_part.h"
#include "corpus/encoding.h"
#include "corpus/inputs.h"
#include "corpus/lengths.h"

namespace sluice::corpus {

struct BuildResult {
  std::filesystem::path prefix;     // of .bin and .idx
  std::filesystem::path tokenizer;  // the model's copy
  int64_t vocabulary = 0;
  int32_t begin_id = -1;  // of the token in front of each document, and of the one behind it; -1: none
  int32_t end_id = -1;
  int64_t continued_documents = 0;  // that an earlier build, which was killed, had written
  bool has_mask = false;
  BuildPart part;
  Encoded encoded;
  std::vector<std::string> source_names;  // of the inputs, as they were given
  std::string chat_options;               // how conversations were rendered, JSON; empty: there are none
  Inputs inputs;
  LengthDistribution lengths;

  double unigram_entropy_nats() const;  // a token, end-of-document tokens included
  int64_t loss_tokens() const;          // that the loss counts as targets
  int64_t duplicates() const;
};

// lengths.json of a corpus, which has all that people plan by.
base::Json lengths_json(const BuildResult& result);

inline constexpr const char* kPartFile = "part.json";

// `what`: equal for all parts of a build, and for them only.
base::Json part_json(const BuildResult& result, const std::string& what);

struct PartFile {
  BuildResult result;  // without prefix, lengths and inputs
  std::string what;
  bool leaves_out_duplicates = false;
};

// Of the corpus with this prefix; nothing where it is no part. InputError when it is damaged.
std::optional<PartFile> read_part_file(const std::filesystem::path& prefix);

}  // namespace sluice::corpus
