// Packing of lanes without stages, in layers of rings: which sequences are cut over how many lanes, where
// their rings lie, and every lane's micro-batches.
#pragma once

#include <optional>

#include "plan/packing.h"

namespace sluice::plan {

// A Packer.
//
// Inside a node a ring costs little, between nodes it exposes much of its transfers. So a sequence takes the
// fewest lanes that hold it and take at most a limit, of widths that nest: all lanes of a node, powers of two
// below. What takes longer than a goal even on a whole node takes the fewest lanes that reach the goal. The
// widest go first, of a width the longest first, each on the run of lanes that is free soonest; inside nodes
// runs are aligned to their width, so that narrower ones find an even floor and nothing is left idle between
// them. A ring takes up sequences as long as its lanes hold them: they share its constant and latencies.
// Those on one lane come last, the most work first, to the lane that ends first; they share micro-batches, as
// few as hold them, behind the rings.
//
// Limits (parts of the goal) and goals (from the lower bound upwards) are tried: goals rise until one is met,
// and limits vary then. The least makespan wins, the earliest of equals; nothing where none is below
// options.below_ns. O(tries · n log n).
// REQUIRES: several lanes, one stage, no share.
std::optional<TimedUnits> pack_lanes(Packing& packing);

}  // namespace sluice::plan
