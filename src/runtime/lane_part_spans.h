// The spans of a lane's part of a micro-batch, for layers.
#pragma once

#include <vector>

#include "layers/row_transfers.h"
#include "strategy/step_plan.h"

namespace sluice::runtime {

// In the order of Unit::pieces_on. A prefix and each of its branches are separate sequences. Under head
// exchange all rows are shared with the other lanes; in a ring only sequences that are cut. REQUIRES: the
// micro-batch is in the plan and covers the lane.
std::vector<layers::PieceSpan> lane_part_spans(const strategy::PipelineMicroBatch& micro_batch, int lane,
                                               const strategy::StepPlan& plan);

}  // namespace sluice::runtime
