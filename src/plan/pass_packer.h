// Sequences on several lanes, whatever their stages and whatever they share: few passes that hold them, of
// which every lane ends at about the same time.
#pragma once

#include <optional>

#include "plan/packing.h"

namespace sluice::plan {

// A Packer: each lane has one micro-batch or none in a pass (plan/pass_fill.h).
//
// A pass is filled for a trial end, which is raised until all its sequences find room, then bisected;
// where so few passes do not hold them and lanes share parameters, with 2, 4 and 8 lanes for each sequence at
// least: wide units fill memory that single lanes leave. Sequences are shared out to passes in runs of
// descending length, and in turns: with one stage to as few passes as hold them and one more, with several to
// as many as keep stages busy, which run the longest sequences first, or in the middle. Where the lanes share
// parameters, those that a micro-batch ties to each other run its pass as one. The first try that ends
// soonest by the schedule is the plan. The rule does not count. O(n · tries · log n). REQUIRES: several
// lanes.
std::optional<TimedUnits> pack_passes(Packing& packing);

}  // namespace sluice::plan
