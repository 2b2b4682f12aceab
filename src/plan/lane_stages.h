// Lanes of a pipeline of several stages: which sequences are cut over how many lanes, where their rings lie,
// and in which order every lane runs them.
#pragma once

#include <optional>

#include "plan/packing.h"

namespace sluice::plan {

// A Packer.
//
// Lanes of several stages lose time in three ways. A unit holds its tokens on the first stage until it has
// been on all and back, so several must fit the credit side by side. A large unit keeps the last stage
// waiting when it comes first, and the first stage when it comes last. And rings tie lanes, which should
// reach them at the same time. So:
//
// - Units are a small part of the credit and of the step: lanes of one node divide a sequence until its unit
//   is small enough. Where all lanes of a node are too few, the sequence takes as many lanes as keep lanes
//   busy, or idle, for the least time in all.
// - Every lane has two columns, of what runs in the front half of the step and in the back half, each a stack
//   that grows from the middle outwards. The widest rings are laid first, of a width the longest first, on
//   the lanes that have least; widths inside nodes nest and are aligned, so narrower ones find an even floor.
//   Sequences on one lane come last, the most work first, to the lowest column, and are cut into units that
//   get smaller towards the ends. So every lane runs small units, then larger ones, then small ones again.
// - A ring that is long on its way through the stages and back allows only so much before and after it on its
//   lanes: their columns begin as much higher. Such rings share lanes while all end in time, since what one
//   leaves idle the next leaves idle too.
// - The score says how much later each lane ends than its columns are high. With that added, short work is
//   dealt out again.
//
// All that depends on when the step is to end, so several ends are tried, and the two most promising ones
// again with what they taught. The least makespan wins, the earliest of equals. O(tries · n log n) and a
// score a try. REQUIRES: several lanes, several stages, no share.
std::optional<TimedUnits> pack_staged_lanes(Packing& packing);

}  // namespace sluice::plan
