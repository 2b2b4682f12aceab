// Stage one of assignment: sequences to pipelines, before anything is packed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/scheme_cost.h"

namespace sluice::plan {

// Which of several pipelines that raise the maximum equally gets a sequence: the first of them, as "<" in the
// published algorithm has it, or the one with the least load of its own, then the first.
enum class TieRule { kFirst, kOwnLoad };

struct DispatchOptions {
  int trials = 100;  // the first takes sequences longest first, the others in random order
  uint64_t seed = 1;
  uint64_t stream = 0;  // of the random numbers
  TieRule tie_rule = TieRule::kOwnLoad;
};

struct Dispatch {
  std::vector<int> pipeline_of;  // by sequence
  int64_t estimated_ns = 0;      // the largest estimate of a pipeline
};

// Hydraulis, Algorithm 1 (appendix E.2) on the estimate of Eq. 2: a pipeline takes the sum of its sequences'
// T, and (PP − 1) times the T of its longest. In each trial sequences that fit fewer pipelines go first. The
// best trial wins, the earliest of equals. Nothing when some sequence fits no pipeline.
// `pipelines`: each pipeline's scheme. O(trials · sequences · pipelines).
std::optional<Dispatch> dispatch(std::span<const int64_t> lengths,
                                 std::span<const SchemeCost* const> pipelines,
                                 const DispatchOptions& options);

// Eq. 2's estimate of the slowest pipeline under an assignment.
int64_t estimated_ns(std::span<const int64_t> lengths, std::span<const SchemeCost* const> pipelines,
                     std::span<const int> pipeline_of);

}  // namespace sluice::plan
