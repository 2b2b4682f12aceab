// Sequences on several lanes, whatever their stages and whatever they share: few passes that hold them, of
// which every lane ends at about the same time.
#pragma once

#include <optional>
#include <span>

#include "plan/pack.h"

namespace sluice::plan {

// Packs sequences `members` (indices into `lengths`) on the lanes of `pipeline`, each lane with one
// micro-batch or none in a pass (plan/pass_fill.h).
//
// A pass is filled for a trial end, which is raised until all its sequences find room, then bisected;
// where so few passes do not hold them and lanes share parameters, with 2, 4 and 8 lanes for each sequence at
// least: wide units fill memory that single lanes leave. Sequences are shared out to passes in runs of
// descending length, and in turns: with one stage to as few passes as hold them and one more, with several to
// as many as keep stages busy, which run the longest sequences first, or in the middle. Where the lanes share
// parameters, those that a micro-batch ties to each other run its pass as one. The first try that ends
// soonest by the schedule is the plan; nothing where none ends below options.below_ns; without it there is a
// plan. The rule does not count. O(n · tries · log n). REQUIRES: several lanes; every length <=
// scheme.max_len_tokens().
std::optional<PackedPipeline> pack_passes(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                                          const cost::CostModel& cost, std::span<const int64_t> lengths,
                                          std::span<const int> members, const PackOptions& options = {});

}  // namespace sluice::plan
