#include "cost/pass_times.h"

#include <algorithm>

namespace sluice::cost {
namespace {

// The first run that has operations, from `from` on.
const SharedOperations* next_of(std::span<const SharedOperations> runs, size_t from) {
  for (; from < runs.size(); ++from) {
    if (runs[from].count > 0) return &runs[from];
  }
  return nullptr;
}

// Of a run's compute time, what its first operations take.
int64_t until(const SharedOperations& run, int64_t operations) {
  return static_cast<int64_t>(static_cast<__int128>(run.compute_ns) * operations / run.count);
}

}  // namespace

int64_t pass_ns(std::span<const SharedOperations> runs) {
  const SharedOperations* first = next_of(runs, 0);
  int64_t total_ns = first != nullptr ? first->gather_ns : 0;
  int64_t scatter_before_ns = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const SharedOperations& run = runs[r];
    if (run.count == 0) continue;
    const SharedOperations* next = next_of(runs, r + 1);
    const int64_t gather_behind_ns = next != nullptr ? next->gather_ns : 0;
    const auto slots = [&](int64_t begin, int64_t end, int64_t moved_ns) {
      total_ns += std::max(until(run, end) - until(run, begin), (end - begin) * moved_ns);
    };
    if (run.count == 1) {
      slots(0, 1, scatter_before_ns + gather_behind_ns);
    } else {
      slots(0, 1, scatter_before_ns + run.gather_ns);
      slots(1, run.count - 1, run.scatter_ns + run.gather_ns);
      slots(run.count - 1, run.count, run.scatter_ns + gather_behind_ns);
    }
    scatter_before_ns = run.scatter_ns;
  }
  return total_ns + scatter_before_ns;
}

std::vector<SharedMove> pass_moves(std::span<const SharedOperations> runs) {
  struct Operation {
    int64_t gather_ns = 0;
    int64_t scatter_ns = 0;
    int64_t compute_ns = 0;
  };
  std::vector<Operation> operations;
  for (const SharedOperations& run : runs) {
    for (int64_t i = 0; i < run.count; ++i)
      operations.push_back({run.gather_ns, run.scatter_ns, until(run, i + 1) - until(run, i)});
  }
  std::vector<SharedMove> moves;
  int64_t at_ns = 0, free_ns = 0;
  const auto add = [&](size_t operation, bool sum, int64_t takes_ns) {
    if (takes_ns == 0) return;
    moves.push_back({static_cast<int64_t>(operation), sum, free_ns, free_ns + takes_ns});
    free_ns += takes_ns;
  };
  for (size_t i = 0; i < operations.size(); ++i) {
    if (i == 0) add(0, false, operations[0].gather_ns);
    at_ns = std::max(at_ns, free_ns);
    free_ns = at_ns;
    if (i + 1 < operations.size()) add(i + 1, false, operations[i + 1].gather_ns);
    if (i > 0) add(i - 1, true, operations[i - 1].scatter_ns);
    at_ns += operations[i].compute_ns;
  }
  free_ns = std::max(at_ns, free_ns);
  if (!operations.empty()) add(operations.size() - 1, true, operations.back().scatter_ns);
  return moves;
}

}  // namespace sluice::cost
