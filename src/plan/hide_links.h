// Orders and resizes one stage's micro-batches so that they hide the transfers beside them.
#pragma once

#include "plan/packing.h"

namespace sluice::plan {

// A lane of one stage takes equally long in any order and with any division of its tokens. But
// pull hides behind the lane's first forward, and push hides behind its last backward, which
// takes twice as long. So lanes whose first micro-batches are shorter than their last run in
// reverse order. With FSDP degree 1, consecutive lane parts that one lane runs alone become
// even. Nothing changes if the step would end later by more than the rounding of cells.
void hide_links(Packing& packing, TimedMicroBatches& packed);

}  // namespace sluice::plan
