// Writes logits to disk, so that another program can compare its own with them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "corpus/sampler.h"
#include "run/evaluator.h"

namespace sluice::run {

struct LogitsFile {
  std::filesystem::path path;
  int64_t sequences = 4;  // the first ones, which are written
};

// Writes tensors "logits.I" [tokens, vocabulary] for sequence I of the batches; the metadata key "sequences"
// is a JSON list of {document, begin, tokens}. Float32, or float64 if the evaluator computes in float64.
// RunError if the disk is full or read-only.
void write_logits(Evaluator& evaluator, const corpus::Blend& blend, const std::vector<corpus::Batch>& batches,
                  const LogitsFile& file);

}  // namespace sluice::run
