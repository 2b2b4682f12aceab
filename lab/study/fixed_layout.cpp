#include "study/fixed_layout.h"

#include <utility>

namespace sluice::study {
namespace {

class FixedLayout : public System {
 public:
  FixedLayout(std::string configuration, cost::CostModel cost, StepOfLengths step_of)
      : configuration_(std::move(configuration)), cost_(std::move(cost)), step_of_(std::move(step_of)) {}

  std::string configuration() const override { return configuration_; }
  const cost::CostModel& cost() const override { return cost_; }

  SystemStep step(int64_t number, const std::vector<strategy::Sequence>& sequences) override {
    SystemStep step = step_of_(lengths_of(sequences), cost_);
    step.plan.step = number;
    step.plan.sequences = sequences;
    return step;
  }

 private:
  std::string configuration_;
  cost::CostModel cost_;
  StepOfLengths step_of_;
};

}  // namespace

std::vector<std::vector<int64_t>> some_batches(const SystemInputs& inputs) {
  constexpr size_t kStride = 4;
  std::vector<std::vector<int64_t>> some;
  for (size_t b = 0; b < inputs.sample_batches.size(); b += kStride) some.push_back(inputs.sample_batches[b]);
  return some;
}

std::unique_ptr<System> fixed_layout(std::string configuration, cost::CostModel cost, StepOfLengths step_of) {
  return std::make_unique<FixedLayout>(std::move(configuration), std::move(cost), std::move(step_of));
}

}  // namespace sluice::study
