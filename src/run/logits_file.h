// Logits on disk, so that another program can compare its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "corpus/sampler.h"
#include "run/evaluator.h"

namespace sluice::run {

struct LogitsFile {
  std::filesystem::path path;
  int64_t sequences = 4;  // how many of the first are written
};

// Writes tensors "logits.I" [tokens, vocabulary] for sequence I of the batches; the metadata key "sequences"
// is a JSON list of {document, begin, tokens}. Float32, or float64 where the evaluator computes in it.
// RunError on a full or unwritable disk.
void write_logits(Evaluator& evaluator, const corpus::Blend& blend, const std::vector<corpus::Batch>& batches,
                  const LogitsFile& file);

}  // namespace sluice::run
