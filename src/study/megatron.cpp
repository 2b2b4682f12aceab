#include "study/megatron.h"

#include <utility>

#include "plan/published/static_strategy.h"
#include "study/baseline_cost.h"
#include "study/lengths_of.h"

namespace sluice::study {
namespace {

class Megatron : public System {
 public:
  Megatron(const SystemInputs& inputs, const plan::StaticStrategy& choice)
      : cost_(one_backward_cell(inputs.cost)), world_size_(inputs.world_size), choice_(choice) {}

  std::string configuration() const override { return to_text(choice_); }
  const cost::CostModel& cost() const override { return cost_; }

  SystemStep step(int64_t step, const std::vector<strategy::Sequence>& sequences) override {
    strategy::StepPlan plan = plan::static_plan(choice_, lengths_of(sequences), cost_, world_size_);
    plan.step = step;
    plan.sequences = sequences;
    return {.plan = std::move(plan)};
  }

 private:
  cost::CostModel cost_;
  int world_size_;
  plan::StaticStrategy choice_;
};

plan::StaticStrategy best(const SystemInputs& inputs, plan::Dealing dealing) {
  return plan::best_static({.world_size = inputs.world_size,
                            .context_length = inputs.context_length,
                            .sample_batches = inputs.sample_batches,
                            .max_cp = inputs.max_cp},
                           one_backward_cell(inputs.cost), dealing);
}

}  // namespace

std::unique_ptr<System> make_megatron(const SystemInputs& inputs) {
  return make_megatron(inputs, best(inputs, plan::Dealing::kTurns));
}

std::unique_ptr<System> make_static(const SystemInputs& inputs) {
  return make_megatron(inputs, best(inputs, plan::Dealing::kLeastWork));
}

std::unique_ptr<System> make_megatron(const SystemInputs& inputs, const plan::StaticStrategy& choice) {
  return std::make_unique<Megatron>(inputs, choice);
}

}  // namespace sluice::study
