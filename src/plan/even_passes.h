// Sequences on lanes so that few passes hold them and every lane of a pass ends at about the same time.
#pragma once

#include <optional>
#include <span>

#include "plan/pack.h"

namespace sluice::plan {

// Packs sequences `members` (indices into `lengths`) on the lanes of `pipeline`, each lane with one
// micro-batch or none in a pass.
//
// One pass is filled so: a trial end T gives each sequence, the longest first, the fewest lanes on which it
// ends by T; it joins the lanes that it fills best among those that still end by T, or begins on free ones,
// inside a node where it fits one, else on whole nodes. T is raised until all find room, then bisected. The
// same, where so many lanes share parameters, with 2, 4 and 8 lanes for each sequence at least: wide units
// fill memory that single lanes leave. Sequences are shared out to passes in runs of descending length, and
// in turns, and to as few passes as hold them and a few more; the first try that ends soonest is the plan.
// Where the lanes share parameters, those that a micro-batch ties to each other run its pass as one. Nothing
// where no try ends below options.below_ns; without it there is a plan. The rule does not count. O(n · tries
// · log n). REQUIRES: one stage, several lanes; every length <= scheme.max_len_tokens().
std::optional<PackedPipeline> pack_even(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                                        const cost::CostModel& cost, std::span<const int64_t> lengths,
                                        std::span<const int> members, const PackOptions& options = {});

}  // namespace sluice::plan
