// Stage two of assignment for pipelines whose lanes share parameters: few passes, each even over its lanes.
#pragma once

#include <span>

#include "plan/pack.h"

namespace sluice::plan {

// Plans sequences `members` (indices into `lengths`) on the lanes of `pipeline`. A pass takes as long as its
// slowest lane and pays its gathers whatever its lanes hold, so passes should be few and even.
//
// Which sequences are cut, over which lanes, and which group a whole one goes to is left to pack_lanes. Then
// each group's whole sequences on lanes of their own are put into as few micro-batches as hold them, a
// multiple of the share, and into one and two passes more, balanced by work; those with the most work run
// first, side by side: of all ways to join sorted loads in passes that has the least sum of maxima. What
// pack_lanes planned is kept where it ends sooner. O(pack_lanes) and three schedules. Of the
// options enough_ns counts. REQUIRES: as pack_lanes; the share is above 1.
PackedPipeline pack_shared(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                           const cost::CostModel& cost, std::span<const int64_t> lengths,
                           std::span<const int> members, const PackOptions& options = {});

}  // namespace sluice::plan
