// Assigns sequences to pipelines one after the other, each where the largest estimate of a pipeline
// (Hydraulis, Eq. 2) grows least: the step of Algorithm 1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/scheme_cost.h"

namespace sluice::published {

// The choice among pipelines that raise the maximum equally: the first of them, as "<" in the published
// algorithm says, or the one with the least load of its own, then the first.
enum class TieRule { kFirst, kOwnLoad };

struct Dispatch {
  std::vector<int> pipeline_of;  // by sequence
  int64_t estimated_ns = 0;      // the largest estimate of a pipeline
};

// Eq. 2 of one pipeline while it fills.
struct DispatchLoad {
  int64_t sum_ns = 0;
  int64_t longest_ns = 0;
  int64_t bubbles = 0;  // PP − 1

  int64_t total_ns() const { return sum_ns + longest_ns * bubbles; }
  int64_t total_with(int64_t ns) const { return sum_ns + ns + std::max(longest_ns, ns) * bubbles; }
  void add(int64_t ns) {
    sum_ns += ns;
    longest_ns = std::max(longest_ns, ns);
  }
  bool operator==(const DispatchLoad&) const = default;
};

// The time for which a sequence keeps a scheme's slowest stage busy, by some rule.
using SequenceTime = int64_t (*)(const plan::SchemeCost& scheme, int64_t length);

// The times of sequences on pipelines.
class DispatchTimes {
 public:
  static constexpr int64_t kDoesNotFit = -1;

  // `pipelines`: each pipeline's scheme.
  DispatchTimes(std::span<const int64_t> lengths, std::span<const plan::SchemeCost* const> pipelines,
                SequenceTime time);

  // Whether each sequence fits some pipeline.
  bool feasible() const { return feasible_; }
  int64_t ns(int sequence, int pipeline) const {
    return scheme_ns(sequence, scheme_of_[static_cast<size_t>(pipeline)]);
  }
  int64_t scheme_ns(int sequence, size_t scheme) const {
    return times_ns_[static_cast<size_t>(sequence) * schemes_.size() + scheme];
  }
  // Pipelines from the largest MaxLen down, equal ones in their own order.
  const std::vector<int>& largest_first() const { return largest_first_; }
  std::vector<DispatchLoad> empty_loads() const;
  size_t schemes() const { return schemes_.size(); }
  size_t scheme_of(int pipeline) const { return scheme_of_[static_cast<size_t>(pipeline)]; }

 private:
  std::vector<const plan::SchemeCost*> pipelines_;
  std::vector<const plan::SchemeCost*> schemes_;  // distinct schemes
  std::vector<size_t> scheme_of_;                 // by pipeline
  std::vector<int> largest_first_;
  std::vector<int64_t> times_ns_;  // by sequence, then scheme
  bool feasible_ = true;
};

// Dispatches sequences in this order. REQUIRES: each fits some pipeline.
Dispatch dispatch_in_order(const DispatchTimes& times, std::span<const int> order, TieRule tie_rule);

// Indices in order of descending length, equal lengths in their own order.
std::vector<int> longest_first(std::span<const int64_t> lengths);

}  // namespace sluice::published
