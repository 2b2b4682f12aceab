// Local search on a strip's passes: sequences of the loads that end last change places with others until the
// longest loads of each pass are as short as single moves and swaps make them.
#pragma once

#include "plan/packing.h"
#include "plan/strip.h"
#include "plan/width_times.h"

namespace sluice::plan {

// Moves a sequence of a load whose forward or backward is the longest of its pass to another load, or swaps
// it with one of that, where behind it no half of either is as long as the longest of its pass; of these what
// leaves most. Lanes of loads stay as they are. REQUIRES: each load is one micro-batch; `times` is of the
// packing.
void level(const Packing& packing, WidthTimes& times, Filling& filling);

}  // namespace sluice::plan
