// Several corpora into one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "corpus/build_result.h"
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
  // Of the parts of a build: what one build would have told; nothing of other corpora.
  std::optional<BuildResult> build;
};

// Writes corpus.bin, corpus.idx and lengths.json: all documents, corpus by corpus; corpus.mask when one of
// them has one, ones for those that have none; and the tokenizer that they share, with its configuration,
// where they lie beside it. InputError when they were made with different tokenizers or token types, or one
// of them is the output.
//
// The parts of a build (build_result.h), given in any order, become what one build would have made of all
// inputs, byte for byte: duplicates in other parts are left out where the build leaves them out. InputError
// naming the parts that are missing, that are there twice, or that are of another build.
MergeResult merge_corpora(const MergeOptions& options);

}  // namespace sluice::corpus
