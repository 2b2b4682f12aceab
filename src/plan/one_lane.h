// Packing of a pipeline of one lane: sequences to micro-batches, whose order and sizes keep its stages busy.
#pragma once

#include <optional>

#include "plan/packing.h"

namespace sluice::plan {

// The fewest micro-batches that fit when PP = 1, where more only cost more constants; otherwise
// several counts, each with even micro-batches in descending, ascending and peaked order. They are timed by the
// schedule, those with the least lower bounds first, until no other can win or one ends by options.enough_ns.
// REQUIRES: one lane.
std::optional<TimedUnits> pack_one_lane(Packing& packing);

}  // namespace sluice::plan
