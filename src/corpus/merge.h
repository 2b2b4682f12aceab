// Several corpora into one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "corpus/lengths.h"

namespace sluice::corpus {

struct MergeOptions {
  std::vector<std::filesystem::path> corpora;  // prefixes
  std::filesystem::path directory;             // where the corpus goes; made when absent
  std::function<void(int64_t done_tokens, int64_t total_tokens)> on_progress;  // may be empty
};

struct MergeResult {
  std::filesystem::path prefix;
  LengthDistribution lengths;
  bool masked = false;
};

// Writes corpus.bin, corpus.idx and lengths.json: all documents, corpus by corpus; corpus.mask when one of
// them has one, ones for those that have none; and the tokenizer that they share, with its configuration,
// where they lie beside it. InputError when they were made with different tokenizers or token types, or one
// of them is the output.
MergeResult merge_corpora(const MergeOptions& options);

}  // namespace sluice::corpus
