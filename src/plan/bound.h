// What no plan of a strategy can beat: a proved lower bound on the time of its slowest pipeline, and the
// prices of schemes that prove it, which dispatch uses.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/floor_table.h"

namespace sluice::plan {

// What proves a bound; see lower_bound.
enum class Proof : uint8_t { kPath, kPrices, kPigeonhole, kRings, kLongest };
// "path", "prices", "pigeonhole", "rings", "longest".
const char* name_of(Proof proof);

struct Bound {
  int64_t lower_ns = 0;
  int64_t start_ns = 0;         // the same without kLongest: what the prices aim at, where searches start
  std::vector<int64_t> prices;  // λ by group, of the best proof by prices
  Proof proof = Proof::kPrices;
};

// The largest of these bounds on the makespan M of any assignment, packing and order under the schedule that
// will run. Whatever it does, a stage runs one cell at a time, a micro-batch enters stages in order, and its
// input gradients come back in order; nothing else is used, so splitting off weight gradients, their order
// and credits don't matter.
// - Path: the lane part of the longest sequence passes all stages and back.
// - Prices: a pipeline of group k that ends by M gives its stage at most M − fill_k, so for any λ >= 0
//   Σ_i min_k λ_k·floor_ik <= Σ_k λ_k·d_k·(M − fill_k), solved for M. fill_k is at most a bound already
//   proved, so that the right side is never negative for an empty pipeline. Constants need not be shared by
//   tokens: with θ_k in [0, 1] floors count θ_k of their share, and V lane parts, which cost V·c and hold
//   at most θ_k·V·c of it, leave M − (1 − θ_k)·V·c: V is 1 with one stage, and with more what leaves most
//   (plan/bubble.h). θ = 1 is best for full lane parts, 0 where one would hold all. λ and θ are sought by
//   damped rounds, once for all sequences and once for those that only the groups of a larger max_len hold
//   (the λ of the others is zero). Where groups differ, that is done for trial values T: if M <= T, no
//   sequence runs on a group where its own path exceeds T, which leaves fewer choices; if the bound among
//   those exceeds T, then so does M. T is bisected.
// - Rings: where groups have lanes, what their sequences have to exchange when all ends by T stands on top of
//   the floors of these trial values (SchemeFloors::ring_floor_ns). Of these groups V is 1 whatever the
//   stages: what is exposed may fill a bubble.
// - Pigeonhole: of the D + 1 longest sequences some pipeline of D gets two.
// - Longest: where a group has single lanes, for trial values T: no dispatch of the longest sequences ends by
// T (plan/longest.h). `lengths` descend. Nothing when a sequence fits no group. Integers only.
std::optional<Bound> lower_bound(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                                 const FloorTable& floors);

// The same in two steps: without trial values, which is quick; then with them, not further than `enough_ns`.
std::optional<Bound> first_bound(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                                 const FloorTable& floors);
void raise_bound(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                 const FloorTable& floors, int64_t enough_ns, Bound& bound);

}  // namespace sluice::plan
