// Packing of few sequences on lanes, where constants take
// most of the time, so the fewest micro-batches are best.
#pragma once

#include <cstdint>

#include "plan/improve.h"

namespace sluice::plan {

// Starts from the sequences on 1, 2, 4 … and all lanes, in two ways: one micro-batch per lane, and one
// ring that cuts the longest over these lanes and keeps the others whole. Improves each start with at most
// `most_cells` cells. Replaces `best` by the soonest if that ends sooner. `improver` is the packing's own.
void start_from_few_micro_batches(const Packing& packing, int64_t most_cells, MicroBatchImprover& improver,
                                  TimedMicroBatches& best);

}  // namespace sluice::plan
