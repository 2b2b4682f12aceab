// A proved lower bound on the time of a strategy's slowest pipeline, whatever
// the plan, and the prices of schemes that prove it. Dispatch uses the prices.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/floor_table.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

using strategy::Proof;  // see lower_bound

struct Bound {
  int64_t lower_ns = 0;
  int64_t start_ns = 0;         // the same without kLongest: what the prices aim at, where searches start
  std::vector<int64_t> prices;  // λ by group, of the best proof by prices
  Proof proof = Proof::kPrices;
};

// The largest of these bounds on the makespan M of any assignment, packing and
// order under the schedule that will run. The proofs use only this: a stage runs
// one cell at a time, micro-batches enter stages in order, and input gradients come
// back in order. So split weight gradients, their order and credits don't matter.
// Path: the lane part of the longest sequence passes all stages and back.
// Prices: a pipeline of group k that ends by M gives its stage at most M − fill_k, so for any λ >= 0
//   Σ_i min_k λ_k·floor_ik <= Σ_k λ_k·d_k·(M − fill_k), solved for M. An empty pipeline's right side is not
//   negative, because fill_k is at most a bound already proved. Tokens need not pay for
//   all constants: with θ_k in [0, 1] floors count θ_k of their share. V lane parts cost
//   V·c and hold at most θ_k·V·c of it, so M − (1 − θ_k)·V·c are left. V is 1 with one
//   stage, with more the V that leaves most (plan/bubble.h). θ = 1 is best for full lane
//   parts, 0 where one would hold all. Damped rounds seek λ and θ: once for all sequences,
//   once for those that only groups of a larger max_len hold (the others' λ is zero). If
//   groups differ, T is bisected over trial values: if M <= T, no sequence runs on a group
//   where its path exceeds T. If the bound among the choices left exceeds T, so does M.
// Rings: if groups have lanes, the exchanges that sequences need if all ends by T are
//   added to the floors of these trial values (SchemeFloors::ring_floor_ns). V is 1 for
//   these groups whatever their stages, because exposed exchanges may fill a bubble.
// Pigeonhole: among the D + 1 longest sequences, two share one of the D pipelines.
// Longest: if a group has single lanes, for trial values T: no dispatch of the longest sequences ends
//   by T (plan/longest.h). `lengths` descend. Nothing if a sequence fits no group. Integers only.
// The first step has no trial values and is quick. The second has them, up to `enough_ns`.
std::optional<Bound> first_bound(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                                 const FloorTable& floors);
void raise_bound(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                 const FloorTable& floors, int64_t enough_ns, Bound& bound);

}  // namespace sluice::plan
