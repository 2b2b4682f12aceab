// How long the operations of a cell take together when their parameters are gathered in front of them and
// their gradients summed behind them.
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
  // Each, where lanes sum in runs: of the runs' sums. It begins where the scatter, of the runs, has ended.
  int64_t between_ns = 0;
  bool operator==(const FsdpOperations&) const = default;
};

// While operation i computes, the parameters of i + 1 are gathered, and behind that the gradients of i − 1
// summed in runs and those of i − 2 between runs, at once, because they take other links; the next begins
// when all is done. With sum(i) = max(scatter(i), between(i − 1)):
//   gather(1) + Σ max(compute(i), gather(i + 1) + sum(i − 1)) + sum(n) + between(n).
// Operations of one kind take equal parts of their time, to the nanosecond, and those inside a run are taken
// together. Without gathers and scatters it is the sum of what they compute. O(runs).
int64_t pass_ns(std::span<const FsdpOperations> runs);

// A gather for an operation, or a sum of its gradients, in nanoseconds from the cell's beginning.
enum class Movement : uint8_t { kGather, kScatter, kBetween };
struct FsdpMove {
  int64_t operation = 0;  // in the cell's order; behind the last one, pieces of its sums
  Movement movement = Movement::kGather;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};
// All that such a cell does beside computing, as it starts. O(operations).
std::vector<FsdpMove> pass_moves(std::span<const FsdpOperations> runs);

}  // namespace sluice::cost
