// What units exchange between their lanes, as far as the model decides it.
#pragma once

#include <string>

#include "model/shape.h"
#include "strategy/step_plan.h"

namespace sluice::cost {

// Why some unit of the plan cannot exchange as it says, with the number and a way out, or "": a lane that
// exchanges heads needs at least one of its TP rank's.
std::string exchange_fault(const model::Shape& shape, const strategy::StepPlan& plan);

}  // namespace sluice::cost
