// Stage two of assignment for a pipeline with several lanes: which sequences are cut over how many lanes,
// where their rings lie, and every lane's micro-batches.
#pragma once

#include <cstdint>
#include <span>

#include "plan/pack.h"

namespace sluice::plan {

// Plans sequences `members` (indices into `lengths`) on the lanes of `pipeline`. For several limits on the
// time of one sequence (parts of the time that the work divided by the lanes takes): a sequence takes the
// fewest lanes that hold it and stay within the limit. Those on several lanes become rings, one sequence
// each, longest first, each on the contiguous run of lanes that is free soonest (of equals, the one that
// wastes least). The others follow, the most work first: into a gap before a ring where they fit, else behind
// the lane that ends first. A lane's own sequences share micro-batches: as few as hold them when PP = 1, else
// several counts of even ones, behind the rings and around them. The least makespan of the schedule that will
// run wins, the earliest of equals. O(n log n + rings · lanes) and as many schedules as tries. REQUIRES:
// every length <= scheme.max_len_tokens().
PackedPipeline pack_lanes(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                          const cost::CostModel& cost, std::span<const int64_t> lengths,
                          std::span<const int> members);

}  // namespace sluice::plan
