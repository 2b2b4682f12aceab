// What a lane has of a unit, as layers see it.
#pragma once

#include <vector>

#include "layers/row_travel.h"
#include "strategy/step_plan.h"

namespace sluice::runtime {

// In the order of Unit::pieces_on. A prefix and each of its branches are sequences of their own. Where heads
// are exchanged all of it is shared with the other lanes, in a ring what is no whole sequence. REQUIRES: the
// unit is of the plan and covers the lane.
std::vector<layers::PieceSpan> unit_spans(const strategy::Unit& unit, int lane,
                                          const strategy::StepPlan& plan);

}  // namespace sluice::runtime
