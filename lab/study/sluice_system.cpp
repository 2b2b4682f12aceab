#include "study/sluice_system.h"

#include <utility>

#include "base/text.h"
#include "session/planned_step.h"

namespace sluice::study {

plan::PlannerOptions sluice_options(const SystemInputs& inputs) {
  plan::PlannerOptions options = inputs.planner;
  options.world_size = inputs.world_size;
  options.devices = inputs.devices;
  options.context_length = inputs.context_length;
  options.sample_batches = inputs.sample_batches;
  if (options.max_cp == 0 && options.method->plans_lanes()) options.max_cp = inputs.max_cp;
  return options;
}

namespace {

class SluiceSystem : public System {
 public:
  explicit SluiceSystem(const SystemInputs& inputs)
      : planner_(session::make_planner(sluice_options(inputs), inputs.cost)) {}

  std::string configuration() const override {
    const auto& strategies = planner_.options().candidates;
    if (strategies.size() == 1) return strategy::to_text(strategies.front());
    return base::text("one of ", strategies.size(), " strategies a step");
  }
  const cost::CostModel& cost() const override { return planner_.cost(); }
  SystemStep step(int64_t step, const std::vector<strategy::Sequence>& sequences) override {
    session::PlannedStep planned = session::plan_step(planner_, step, sequences).or_throw();
    return {.plan = std::move(planned.plan), .fallback = std::move(planned.fallback)};
  }
  std::vector<report::ExplainedCompression> wire(const SystemStep& step) const override {
    if (!step.fallback.empty()) return {};
    return report::explain_compression(step.plan, planner_);
  }

 private:
  plan::Planner planner_;
};

}  // namespace

std::unique_ptr<System> make_sluice(const SystemInputs& inputs) {
  return std::make_unique<SluiceSystem>(inputs);
}

}  // namespace sluice::study
