// The batches of a run whose data change: one sampler a phase, each from its first step on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corpus/sampler.h"

namespace sluice::session {

struct SamplerPhase {
  int64_t first_step = 0;
  corpus::Sampler sampler;
  bool goes_on = false;  // with the documents where the phase before it stopped; otherwise it begins its own
};

// Not thread-safe.
class PhasedSampler {
 public:
  // Stands before step 0. REQUIRES: first steps ascend from 0.
  explicit PhasedSampler(std::vector<SamplerPhase> phases) : phases_(std::move(phases)) {}
  explicit PhasedSampler(corpus::Sampler only)
      : PhasedSampler(std::vector{SamplerPhase{0, std::move(only)}}) {}

  // As corpus::Sampler. A state is that of the phase to which the step before it belongs.
  corpus::Batch next();
  void skip(int64_t steps);
  int64_t step() const { return phases_[phase_].sampler.step(); }
  corpus::SamplerState state() const { return phases_[phase_].sampler.state(); }
  void restore(const corpus::SamplerState& state, const std::string& where = "the checkpoint");

  // The phase of the batch that was last drawn.
  size_t phase() const { return phase_; }

 private:
  void enter_due();

  std::vector<SamplerPhase> phases_;
  size_t phase_ = 0;
};

}  // namespace sluice::session
