// The index of a sequence in a sorted batch.
#pragma once

#include "base/index.h"

namespace sluice::plan {

// A sequence by its place among the sequences of a batch, longest first: an index of all that is listed so.
// The index of a sequence in the batch itself is an int.
using Place = base::Index<struct SortedSequence>;

}  // namespace sluice::plan
