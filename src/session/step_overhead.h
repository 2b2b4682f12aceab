// The time of a step beyond its schedule, by the clock of the graph that would run.
#pragma once

#include <memory>

#include "graph/link_plan.h"
#include "model/parameters.h"
#include "plan/planner_options.h"
#include "plan/proposal.h"

namespace sluice::session {

class ClockedStepOverhead : public plan::StepOverhead {
 public:
  explicit ClockedStepOverhead(const cost::CostModel& cost);

  int64_t of_plan_ns(const strategy::StepPlan& plan, const cost::CostModel& cost, int ranks) const override;
  // The first round of pull and the last of push, which nothing hides, and the update.
  int64_t least_ns(const strategy::Strategy& strategy, const cost::CostModel& cost, int ranks) const override;

 private:
  model::ParameterTable table_;
  mutable graph::LinkPlans links_{graph::LinkPlanUse::kClock};
};

// The one that the options' known steps share, or a new one.
std::shared_ptr<const plan::StepOverhead> clocked_step_overhead(const plan::PlannerOptions& options,
                                                                const cost::CostModel& cost);

}  // namespace sluice::session
