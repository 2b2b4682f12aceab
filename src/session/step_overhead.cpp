#include "session/step_overhead.h"

#include <algorithm>

#include "graph/build.h"
#include "model/program.h"

namespace sluice::session {

ClockedStepOverhead::ClockedStepOverhead(const cost::CostModel& cost)
    : table_(model::parameter_table(cost.options().model, cost.program())) {}

int64_t ClockedStepOverhead::of_plan_ns(const strategy::StepPlan& plan, const cost::CostModel& cost,
                                        int ranks) const {
  const bool works = std::ranges::any_of(
      plan.pipelines, [](const auto& pipeline) { return !pipeline.micro_batches.empty(); });
  if (!works) return 0;
  const graph::StepGraph graph =
      graph::build(plan, table_, cost, ranks, {.disabled_passes = {"verify"}, .link_plans = &links_});
  return std::max<int64_t>(0, graph.makespan_ns - plan.estimated_ns);
}

int64_t ClockedStepOverhead::least_ns(const strategy::Strategy& strategy, const cost::CostModel& cost,
                                      int ranks) const {
  return graph::least_ns(*links_.of(table_, strategy, {ranks, cost.options().topology}), cost);
}

std::shared_ptr<const plan::StepOverhead> clocked_step_overhead(const plan::PlannerOptions& options,
                                                                const cost::CostModel& cost) {
  const auto make = [&] { return std::make_shared<const ClockedStepOverhead>(cost); };
  return options.known_steps ? options.known_steps->step_overhead(make) : make();
}

}  // namespace sluice::session
