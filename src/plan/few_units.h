// Packing of few sequences on lanes, where constants are most of the time and as few units as can be are the
// best.
#pragma once

#include <cstdint>
#include <span>

#include "plan/improve.h"

namespace sluice::plan {

struct ImproverLimits {
  int64_t enough_ns = 0;
  int64_t most_cells = 0;
};

// On one lane, two, and so on up to all: the sequences `members` (indices into `lengths`) as one unit a lane,
// and as a single ring that cuts the longest over these lanes and has the others whole; each improved within
// the limits. `best` becomes the one that ends first, where that is sooner than it does. `improver` is that
// of the scheme's pipeline.
void start_from_few_units(const SchemeCost& scheme, std::span<const int64_t> lengths,
                          std::span<const int> members, const ImproverLimits& limits, UnitImprover& improver,
                          TimedUnits& best);

}  // namespace sluice::plan
