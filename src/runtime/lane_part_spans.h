// What a lane has of a micro-batch, as layers see it.
#pragma once

#include <vector>

#include "layers/row_transfers.h"
#include "strategy/step_plan.h"

namespace sluice::runtime {

// In the order of Unit::pieces_on. A prefix and each of its branches are sequences of their own. Where heads
// are exchanged all of it is shared with the other lanes, in a ring what is no whole sequence. REQUIRES: the
// micro-batch is of the plan and covers the lane.
std::vector<layers::PieceSpan> lane_part_spans(const strategy::PipelineMicroBatch& micro_batch, int lane,
                                               const strategy::StepPlan& plan);

}  // namespace sluice::runtime
