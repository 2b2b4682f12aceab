// Memory policies of a plan's micro-batches.
#pragma once

#include "cost/cost_model.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

void set_policy(strategy::StepPlan& plan, const strategy::MemoryPolicy& policy);

// Relaxes a plan made under a policy that only its longest micro-batches need. Micro-batches that fit
// under `first`'s policy get it, pipeline by pipeline where the schedule ends no later. Sets estimated_ns.
void relax_policies(strategy::StepPlan& plan, const cost::CostModel& first, int world_size);

}  // namespace sluice::plan
