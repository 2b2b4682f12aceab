// How long the operations of a cell take together when their parameters are gathered in front of them and
// their gradients summed behind them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::cost {

// Operations of one kind that follow each other, in the order in which the cell computes them.
struct SharedOperations {
  int64_t count = 0;
  int64_t compute_ns = 0;  // all of them
  int64_t gather_ns = 0;   // each; 0: it needs no parameters
  int64_t scatter_ns = 0;  // each; 0: it makes no gradients
  bool operator==(const SharedOperations&) const = default;
};

// While operation i computes, the parameters of i + 1 are gathered and the gradients of i − 1 summed, one
// after the other; the next begins when all three are done:
//   gather(1) + Σ max(compute(i), gather(i + 1) + scatter(i − 1)) + scatter(n).
// Operations of one kind take equal parts of their time, to the nanosecond, and those inside a run are taken
// together. Without gathers and scatters it is the sum of what they compute. O(runs).
int64_t pass_ns(std::span<const SharedOperations> runs);

// A gather for an operation, or the sum of its gradients, in nanoseconds from the cell's beginning.
struct SharedMove {
  int64_t operation = 0;  // in the cell's order
  bool sum = false;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};
// All that such a cell does beside computing, as it starts. O(operations).
std::vector<SharedMove> pass_moves(std::span<const SharedOperations> runs);

}  // namespace sluice::cost
