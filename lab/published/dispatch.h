// Stage one of the published assignment: sequences to pipelines, before anything is packed.
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
  uint64_t stream = 0;  // of the random numbers
  TieRule tie_rule = TieRule::kOwnLoad;
  ConstantRule constants = ConstantRule::kPrinted;
};

// Hydraulis, Algorithm 1 (appendix E.2) on the estimate of Eq. 2: a pipeline takes the sum of its sequences'
// T, and (PP − 1) times the T of its longest; T by the rule of constants. Pipelines are looked at from the
// largest MaxLen down, equal ones in their own order. The best trial wins, the earliest of equals. Nothing
// when some sequence fits no pipeline. `pipelines`: each pipeline's scheme.
// O(trials · sequences · pipelines).
std::optional<Dispatch> dispatch(std::span<const int64_t> lengths,
                                 std::span<const plan::SchemeCost* const> pipelines,
                                 const DispatchOptions& options);

// The random orders in which the trials take so many sequences.
std::vector<std::vector<int>> trial_orders(size_t sequences, const DispatchOptions& options);

// Eq. 3, "ideal dispatching": the least largest estimate of Eq. 2 over all assignments.
struct IdealDispatch {
  Dispatch best;
  int64_t lower_ns = 0;  // no assignment has less
  bool proved = false;   // best.estimated_ns is lower_ns
};

// By branch and bound from the best of Algorithm 1 with `start`: the longest sequences first, each to the
// pipeline that then ends first; pipelines of one scheme with the same load are tried once. A branch ends
// where the largest load, or the average of loads and least times still to come under one price for each
// scheme (weak duality), is no better than the best known. The same on every machine; not proved when
// `node_budget` branches were not enough.
std::optional<IdealDispatch> ideal_dispatch(std::span<const int64_t> lengths,
                                            std::span<const plan::SchemeCost* const> pipelines,
                                            const DispatchOptions& start, int64_t node_budget);

// Eq. 2's estimate of the slowest pipeline under an assignment.
int64_t estimated_ns(std::span<const int64_t> lengths, std::span<const plan::SchemeCost* const> pipelines,
                     std::span<const int> pipeline_of, ConstantRule constants = ConstantRule::kPrinted);

}  // namespace sluice::published
