#include "study/sluice_system.h"

#include <utility>

#include "base/text.h"
#include "plan/planner.h"
#include "plan/proposal.h"

namespace sluice::study {

namespace {

std::vector<strategy::Strategy> candidates(const SystemInputs& inputs) {
  if (!inputs.strategies.empty()) return inputs.strategies;
  const plan::ProposalOptions options{.world_size = inputs.world_size,
                                      .context_length = inputs.context_length,
                                      .sample_batches = inputs.sample_batches,
                                      .max_cp = inputs.max_cp};
  return plan::strategies_of(plan::propose(options, inputs.cost));
}

class SluiceSystem : public System {
 public:
  explicit SluiceSystem(const SystemInputs& inputs)
      : planner_({.world_size = inputs.world_size, .candidates = candidates(inputs)}, inputs.cost) {}

  std::string configuration() const override {
    const auto& strategies = planner_.options().candidates;
    if (strategies.size() == 1) return strategy::to_text(strategies.front());
    return base::text("one of ", strategies.size(), " strategies a step");
  }
  const cost::CostModel& cost() const override { return planner_.cost(); }
  SystemStep step(int64_t step, const std::vector<strategy::Sequence>& sequences) override {
    return {planner_.plan(step, sequences), 0};
  }

 private:
  plan::Planner planner_;
};

}  // namespace

std::unique_ptr<System> make_sluice(const SystemInputs& inputs) {
  return std::make_unique<SluiceSystem>(inputs);
}

}  // namespace sluice::study
