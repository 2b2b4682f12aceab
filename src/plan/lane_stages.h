// Lanes of a pipeline of several stages: which sequences are cut over how many lanes, where their rings lie,
// and in which order every lane runs them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/lane_draft.h"
#include "plan/lane_floor.h"
#include "plan/scheme_cost.h"

namespace sluice::plan {

struct StagedPack {
  LaneDraft draft;
  int64_t makespan_ns = 0;
};

// Plans sequences `members` (indices into `lengths`) on the lanes of a scheme of several stages; `nodes` are
// the runs of lanes that lie inside one node. `drafting` scores what is tried.
//
// What is lost between stages is lost in the middle and at the ends. A unit holds its tokens on the first
// stage until it has been on all of them and back, so units are a small part of the credit; where eight lanes
// of a node do not make them so, a ring takes more lanes. A large unit keeps the last stage waiting when it
// comes first and the first one when it comes last, so every lane runs small units, then larger and larger
// ones, then smaller ones again. And rings tie lanes, which must reach them at the same time.
//
// All three come from one construction. Every lane has two columns, of what runs in the front half of the
// step and in the back half, each a stack from the middle of the step outwards. The widest rings are laid
// first, of a width the longest first, each where the columns are lowest; widths inside nodes nest and are
// aligned, so narrower ones find an even floor. Sequences on one lane come last, the most work first, to the
// lowest column, and are cut into units that get smaller towards the ends. Columns of a ring that takes so
// long to pass the stages that little may run before it, or after it, begin as much higher.
//
// That depends on when all ends, so several ends are tried, each with more before or more after the rings.
// The least score wins, the earliest of equals. O(tries · n log n) and a score a try. REQUIRES: PP > 1; every
// length <= scheme.max_len_tokens().
StagedPack pack_staged_lanes(const SchemeCost& scheme, std::vector<LaneRun> nodes,
                             std::span<const int64_t> lengths, std::span<const int> members,
                             const LaneDrafting& drafting);

}  // namespace sluice::plan
