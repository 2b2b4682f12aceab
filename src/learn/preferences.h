// Training steps on better and worse answers (rl/preference.h).
#pragma once

#include <memory>
#include <optional>

#include "corpus/sampler.h"
#include "rl/episode.h"
#include "rl/rejected_order.h"
#include "run/plan_ahead.h"
#include "run/run_context.h"

namespace sluice::learn {

// The gradient of a preference loss is that of −Σ log p over tokens, times a figure of the answer. A forward
// pass before the step thus gives all that the head needs. Better answers are data.train's. Worse ones are
// those of the same documents of rl.rejected (dpo), or the next ones there in an order of their own, a new
// one each epoch (kto).
class Preferences final : public run::StepSource {
 public:
  // REQUIRES: the run is open and outlives this.
  explicit Preferences(run::RunContext& run);

  // Collective; called by the thread that runs steps.
  std::unique_ptr<run::PreparedStep> next() override;

 private:
  rl::MiniBatch draw();
  report::StepRecord weigh(rl::MiniBatch& batch);
  int64_t rejected_document(int64_t chosen);
  rl::MiniBatch elsewhere(const rl::MiniBatch& batch) const;

  run::RunContext& run_;
  const config::RlConfig& config_;
  const session::DataPhase& data_;
  corpus::Sampler chosen_;
  std::optional<rl::RejectedOrder> rejected_;  // for kto alone
  int64_t step_;
};

}  // namespace sluice::learn
