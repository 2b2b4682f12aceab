// Sequences to micro-batches, whatever lanes and stages a pipeline has and lanes share: passes on a strip.
#pragma once

#include <optional>

#include "plan/packing.h"

namespace sluice::plan {

// Micro-batches of the packing's sequences; nothing where none that are found end below options.below_ns.
//
// Where lanes share parameters the step is cut into passes, as few as hold the sequences and one more; with
// several stages, on one lane, too, into as many as keep them busy, small ones at both ends, which run the
// longest sequences first, or in the middle. Else they are even, but for those of sequences that take longer.
// Elsewhere the step is one pass, in which lanes run loads one behind the other. A strip (plan/strip.h) is
// filled for trial ends, from the least that the work allows upwards until one holds all, then bisected:
// first for ends that forward and backward may divide as they like, then, where lanes wait for each other
// between the two, for both apart. The try that ends soonest by the schedule is the plan, the first of
// equals.
std::optional<TimedMicroBatches> pack_strip(Packing& packing);

}  // namespace sluice::plan
