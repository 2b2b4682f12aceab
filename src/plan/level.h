// Local search on a strip's passes: moves and swaps sequences of the loads that
// end last, until no single step makes the longest loads of a pass shorter.
#pragma once

#include "plan/packing.h"
#include "plan/strip.h"
#include "plan/width_times.h"

namespace sluice::plan {

// Moves a sequence away from a load whose forward or backward is its pass's longest, or
// swaps it with one of another load. Afterwards both halves of both loads must be shorter
// than the pass's longest half. Takes the step that leaves most time. The lanes of loads
// stay as they are. REQUIRES: each load is one micro-batch; `times` belongs to the packing.
void level(const Packing& packing, WidthTimes& times, Filling& filling);

}  // namespace sluice::plan
