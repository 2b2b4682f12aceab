// Steps on answers of which some are better than others (rl/preference.h).
#pragma once

#include <memory>
#include <optional>

#include "corpus/sampler.h"
#include "rl/episode.h"
#include "rl/rejected_order.h"
#include "run/plan_ahead.h"
#include "run/run_context.h"

namespace sluice::learn {

// The gradient of such a loss is that of −Σ log p, by tokens, times a figure of the answer, so a forward pass
// before the step tells all that the head needs. Better answers are data.train's; worse ones are of the same
// documents of rl.rejected (dpo), or whichever are next there in an order of their own, a new one each epoch
// (kto).
class Preferences final : public run::StepSource {
 public:
  // The run is open and outlives it.
  explicit Preferences(run::RunContext& run);

  // Collective, by the thread that runs steps.
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
  std::optional<rl::RejectedOrder> rejected_;  // of kto
  int64_t step_;
};

}  // namespace sluice::learn
