// Packing of few sequences on lanes, where constants are most of the time and as few micro-batches as can be
// are the best.
#pragma once

#include <cstdint>

#include "plan/improve.h"

namespace sluice::plan {

// On one lane, two, four and so on, and all: the sequences as one micro-batch a lane, and as a single ring
// that cuts the longest over these lanes and has the others whole; each improved with so many cells. `best`
// becomes the one that ends first, where that is sooner than it does. `improver` is that of the packing.
void start_from_few_micro_batches(const Packing& packing, int64_t most_cells, MicroBatchImprover& improver,
                                  TimedMicroBatches& best);

}  // namespace sluice::plan
