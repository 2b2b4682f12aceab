// The time that the operations of a cell take together if their parameters are gathered before them and their
// gradients are summed after them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::cost {

// Operations of one kind that follow each other, in the order in which the cell computes them.
struct FsdpOperations {
  int64_t count = 0;
  int64_t compute_ns = 0;  // all of them
  int64_t gather_ns = 0;   // each; 0: it needs no parameters
  int64_t scatter_ns = 0;  // each; 0: it makes no gradients
  // Each, if lanes sum in runs: the sum between runs, which begins when the scatter inside runs has ended.
  int64_t between_ns = 0;
  bool operator==(const FsdpOperations&) const = default;
};

// While operation i computes, the parameters of i + 1 are gathered. Then the gradients of i − 1 are summed
// inside runs and those of i − 2 between runs, at the same time, because they take other links. The next
// operation begins when all is done. With sum(i) = max(scatter(i), between(i − 1)) a cell takes
//   gather(1) + Σ max(compute(i), gather(i + 1) + sum(i − 1)) + sum(n) + between(n).
// The operations of a run take equal parts of its time, to the nanosecond, and those in its middle are taken
// together. Without gathers and scatters the time is the sum of what they compute. O(runs).
int64_t pass_ns(std::span<const FsdpOperations> runs);

// A gather for an operation, or a sum of its gradients, in nanoseconds from the cell's beginning.
enum class Movement : uint8_t { kGather, kScatter, kBetween };
struct FsdpMove {
  int64_t operation = 0;  // in the cell's order; after the last one, pieces of its sums
  Movement movement = Movement::kGather;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};
// All transfers of such a cell, in the order of their start. O(operations).
std::vector<FsdpMove> pass_moves(std::span<const FsdpOperations> runs);

}  // namespace sluice::cost
