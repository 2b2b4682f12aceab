// What greedy and ideal dispatching share: times of sequences on pipelines, and Eq. 2 of a pipeline.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/scheme_cost.h"

namespace sluice::plan {

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

class DispatchTimes {
 public:
  static constexpr int64_t kDoesNotFit = -1;

  // `time` is one of SchemeCost's times of a sequence.
  DispatchTimes(std::span<const int64_t> lengths, std::span<const SchemeCost* const> pipelines,
                int64_t (SchemeCost::*time)(int64_t) const);

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
  std::vector<const SchemeCost*> pipelines_;
  std::vector<const SchemeCost*> schemes_;  // those that differ
  std::vector<size_t> scheme_of_;           // by pipeline
  std::vector<int> largest_first_;
  std::vector<int64_t> times_ns_;  // by sequence, then scheme
  bool feasible_ = true;
};

// Indices from the longest down, equal ones in their own order.
std::vector<int> longest_first(std::span<const int64_t> lengths);

}  // namespace sluice::plan
