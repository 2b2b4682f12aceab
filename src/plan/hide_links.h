// One stage's micro-batches in the order and of the sizes that hide what links move beside them.
#pragma once

#include "plan/packing.h"

namespace sluice::plan {

// A lane of one stage takes as long whatever comes first, and however its lane parts divide what they
// hold. But what pull brings hides behind its first forward, and what push takes away behind its last
// backward, which is twice as long. So lanes that begin with shorter micro-batches than they end with run
// them the other way round, and where lanes share nothing the lane parts that a lane runs alone, one behind
// the other, become even. Nothing is changed where that would end later, but for the rounding of cells.
void hide_links(Packing& packing, TimedMicroBatches& packed);

}  // namespace sluice::plan
