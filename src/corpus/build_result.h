// The files and counts of a build. For a part of a build, part.json beside the corpus holds them.
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
  std::filesystem::path prefix;     // prefix of .bin and .idx
  std::filesystem::path tokenizer;  // copy of the tokenizer's model file
  int64_t vocabulary = 0;
  int32_t begin_id = -1;  // token in front of each document; end_id: token behind it; -1: none
  int32_t end_id = -1;
  int64_t continued_documents = 0;  // written by an earlier build, which was killed
  bool has_mask = false;
  BuildPart part;
  Encoded encoded;
  std::vector<std::string> source_names;  // inputs as they were given
  std::string chat_options;               // how conversations were rendered, JSON; empty: there are none
  Inputs inputs;
  LengthDistribution lengths;

  double unigram_entropy_nats() const;  // nats per token, end-of-document tokens included
  int64_t loss_tokens() const;          // targets that the loss counts
  int64_t duplicates() const;
};

// lengths.json of a corpus: lengths, token counts and the other figures that people plan by.
base::Json lengths_json(const BuildResult& result);

inline constexpr const char* kPartFile = "part.json";

// The fingerprint `what` is the same for all parts of one build and differs from other builds'.
base::Json part_json(const BuildResult& result, const std::string& what);

struct PartFile {
  BuildResult result;  // prefix, lengths and inputs are not set
  std::string what;
  bool leaves_out_duplicates = false;
};

// Reads part.json beside the corpus; nullopt if the corpus is no part. InputError if it is damaged.
std::optional<PartFile> read_part_file(const std::filesystem::path& prefix);

}  // namespace sluice::corpus
