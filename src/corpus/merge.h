// Merges several corpora into one.
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
  std::filesystem::path directory;             // receives the corpus; made when absent
  std::function<void(int64_t done_tokens, int64_t total_tokens)> on_progress;  // may be empty
};

struct MergeResult {
  std::filesystem::path prefix;
  LengthDistribution lengths;
  bool masked = false;
  // Parts of a build: the result of an undivided build; nullopt for other corpora.
  std::optional<BuildResult> build;
};

// Writes corpus.bin, corpus.idx and lengths.json with all documents, corpus by corpus. Writes corpus.mask if
// any corpus has a mask, with ones for corpora without. Writes the tokenizer that the corpora share, with its
// configuration, if it lies beside them. InputError if their tokenizers or token types differ, or if one of
// them is the output.
//
// The parts of a build (build_result.h), given in any order, become the output of one build of all inputs,
// byte for byte: duplicates in other parts are left out if the build leaves them out. InputError naming parts
// that are missing, occur twice, or belong to another build.
MergeResult merge_corpora(const MergeOptions& options);

}  // namespace sluice::corpus
