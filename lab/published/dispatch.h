// Stage one of the published assignment: sequences to pipelines, before packing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "published/greedy_dispatch.h"
#include "published/sequence_time.h"

namespace sluice::published {

struct DispatchOptions {
  int trials = 100;  // each takes the sequences in another random order
  uint64_t seed = 1;
  uint64_t stream = 0;  // random number stream
  TieRule tie_rule = TieRule::kOwnLoad;
  ConstantRule constants = ConstantRule::kPrinted;
};

// Hydraulis, Algorithm 1 (appendix E.2) with the estimate of Eq. 2: a pipeline takes the sum of its
// sequences' T, and (PP − 1) times the T of its longest; T by the rule of constants. Pipelines are tried in
// order of descending MaxLen, equal ones in their own order. The best trial wins, the earliest of equals.
// Nullopt if some sequence fits no pipeline. `pipelines`: each pipeline's scheme. O(trials · sequences ·
// pipelines).
std::optional<Dispatch> dispatch(std::span<const int64_t> lengths,
                                 std::span<const plan::SchemeCost* const> pipelines,
                                 const DispatchOptions& options);

// The random orders of `sequences` sequences in which the trials take them.
std::vector<std::vector<int>> trial_orders(size_t sequences, const DispatchOptions& options);

// Eq. 3, "ideal dispatching": the least largest estimate of Eq. 2 over all assignments.
struct IdealDispatch {
  Dispatch best;
  int64_t lower_ns = 0;  // a lower bound on all assignments
  bool proved = false;   // best.estimated_ns is lower_ns
};

// Branch and bound from the best of Algorithm 1 with `start`: the longest sequences first, each to the
// pipeline that then ends first. Pipelines of one scheme with equal loads are tried once. A branch ends if
// the largest load is no better than the best known. It also ends if the average of loads and least remaining
// times, under one price per scheme (weak duality), is no better. The same on every machine; not proved if
// `node_budget` branches do not suffice.
std::optional<IdealDispatch> ideal_dispatch(std::span<const int64_t> lengths,
                                            std::span<const plan::SchemeCost* const> pipelines,
                                            const DispatchOptions& start, int64_t node_budget);

// Eq. 2's estimate of the slowest pipeline under an assignment.
int64_t estimated_ns(std::span<const int64_t> lengths, std::span<const plan::SchemeCost* const> pipelines,
                     std::span<const int> pipeline_of, ConstantRule constants = ConstantRule::kPrinted);

}  // namespace sluice::published
