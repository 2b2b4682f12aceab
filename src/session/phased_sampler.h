// The batches of a run whose data change: one source for each phase, used from its first step on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "corpus/batch_source.h"

namespace sluice::session {

struct SamplerPhase {
  int64_t first_step = 0;
  std::unique_ptr<corpus::BatchSource> batches;
  bool goes_on = false;  // with the documents, where the previous phase stopped; else it begins its own
};

// Not thread-safe.
class PhasedSampler {
 public:
  // Starts before step 0. REQUIRES: first steps ascend from 0.
  explicit PhasedSampler(std::vector<SamplerPhase> phases) : phases_(std::move(phases)) {}
  explicit PhasedSampler(std::unique_ptr<corpus::BatchSource> only) {
    phases_.push_back({.batches = std::move(only)});
  }

  // As corpus::BatchSource. A state belongs to the phase of the step before it.
  corpus::Batch next();
  void skip(int64_t steps);
  int64_t step() const { return phases_[phase_].batches->step(); }
  corpus::SamplerState state() const { return phases_[phase_].batches->state(); }
  void restore(const corpus::SamplerState& state, const std::string& where = "the checkpoint");

  // The phase of the batch that was last drawn.
  size_t phase() const { return phase_; }

 private:
  void enter_due();

  std::vector<SamplerPhase> phases_;
  size_t phase_ = 0;
};

}  // namespace sluice::session
