// A step plan for people.
#pragma once

#include <string>

#include "strategy/step_plan.h"

namespace sluice::report {

// The batch, every lane of each pipeline with its micro-batches, and the candidates' estimates; no newline at
// the end. `predicted_ns`: the whole step's; 0: unknown, so the plan's own estimate is shown.
std::string plan_table(const strategy::StepPlan& plan, int64_t predicted_ns = 0);

}  // namespace sluice::report
