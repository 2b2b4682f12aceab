// The corpora of a run: what is trained on and what is evaluated.
#pragma once

#include <optional>
#include <vector>

#include "config/run_config.h"
#include "corpus/blend.h"
#include "corpus/sampler.h"

namespace sluice::config {

// Evaluation goes through its batches in order; `blend` resolves their documents.
struct ValidationData {
  corpus::Blend blend;
  std::vector<corpus::Batch> batches;
};

struct Data {
  corpus::Blend training;
  corpus::SamplerOptions sampling;
  std::optional<ValidationData> validation;

  corpus::Sampler sampler() const { return corpus::Sampler(training.sources(), sampling); }
  // The longest sequence that training can meet, and that evaluation meets, if any; numbered in their blends.
  std::optional<corpus::Sample> longest_training() const;
  std::optional<corpus::Sample> longest_validation() const;
  // The length of the longer one.
  int64_t longest_sequence() const;
};

// Opens the configuration's corpora. InputError as corpus::Blend and corpus::Sampler, or when no training
// corpus is named, both kinds of validation are, or a mask leaves nothing to learn from. REQUIRES:
// config.model.shape.
Data open_data(const config::RunConfig& config);

}  // namespace sluice::config
