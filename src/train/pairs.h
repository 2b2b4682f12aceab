// Steps on pairs of answers, one better than the other: direct preference optimisation (Rafailov et al., DPO,
// 2023).
#pragma once

#include <memory>

#include "corpus/sampler.h"
#include "rl/episode.h"
#include "train/plan_ahead.h"
#include "train/run_context.h"

namespace sluice::train {

// The loss of a pair is −log σ(β·m), m = log(p/p_ref)(chosen) − log(p/p_ref)(rejected) of whole answers. Its
// gradient is that of −Σ log p, by tokens, times β·σ(−β·m) and the answer's sign, so a forward pass before
// the step tells all that the head needs.
class Pairs final : public StepSource {
 public:
  // The run is open and outlives it.
  explicit Pairs(RunContext& run);

  // Collective, by the thread that runs steps.
  std::unique_ptr<PreparedStep> next() override;

 private:
  rl::MiniBatch draw();
  report::StepRecord weigh(rl::MiniBatch& batch);

  RunContext& run_;
  const config::RlConfig& config_;
  const session::DataPhase& data_;
  corpus::Sampler chosen_;
  int64_t step_;
};

}  // namespace sluice::train
