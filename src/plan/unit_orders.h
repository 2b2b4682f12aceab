// Orders of a pipeline's micro-batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace sluice::plan {

// From the last, alternately in front and behind, towards the first in the middle.
template <typename Of>
std::vector<Of> peaked(const std::vector<Of>& of) {
  std::vector<Of> peaked(of.size());
  for (size_t i = 0; i < of.size(); ++i)
    peaked[i % 2 == 0 ? i / 2 : of.size() - 1 - i / 2] = of[of.size() - 1 - i];
  return peaked;
}

// Where the schedule is the same in any order, as on one stage: the longest last, the next one first. For
// parameters are pulled beside the first forward, and gradients pushed beside the last backward. By index.
inline std::vector<size_t> longest_outside(std::span<const int64_t> times_ns) {
  std::vector<size_t> order(times_ns.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return times_ns[i]; });
  if (!order.empty()) std::ranges::rotate(order, order.begin() + 1);  // the longest behind the others
  return order;
}

}  // namespace sluice::plan
