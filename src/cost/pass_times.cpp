#include "cost/pass_times.h"

#include <algorithm>
#include <utility>

namespace sluice::cost {
namespace {

// The first run that has operations, from `from` on.
const FsdpOperations* next_of(std::span<const FsdpOperations> runs, size_t from) {
  for (; from < runs.size(); ++from) {
    if (runs[from].count > 0) return &runs[from];
  }
  return nullptr;
}

// The compute time of a run's first operations.
int64_t until(const FsdpOperations& run, int64_t operations) {
  return static_cast<int64_t>(static_cast<__int128>(run.compute_ns) * operations / run.count);
}

}  // namespace

int64_t pass_ns(std::span<const FsdpOperations> runs) {
  const FsdpOperations* first = next_of(runs, 0);
  int64_t total_ns = first != nullptr ? first->gather_ns : 0;
  int64_t scatter_ns = 0, between_ns = 0, before_ns = 0;  // the last operation's; and the between_ns before
  for (size_t r = 0; r < runs.size(); ++r) {
    const FsdpOperations& run = runs[r];
    if (run.count == 0) continue;
    const FsdpOperations* next = next_of(runs, r + 1);
    const auto slots = [&](int64_t begin, int64_t end, int64_t gather_ns) {
      const int64_t moved_ns = gather_ns + std::max(scatter_ns, before_ns);
      total_ns += std::max(until(run, end) - until(run, begin), (end - begin) * moved_ns);
      before_ns = std::exchange(between_ns, run.between_ns);
      scatter_ns = run.scatter_ns;
    };
    // After the first two, all operations but the last have equal transfers.
    const int64_t alike = std::min<int64_t>(2, run.count - 1);
    for (int64_t i = 0; i < alike; ++i) slots(i, i + 1, run.gather_ns);
    if (alike < run.count - 1) slots(alike, run.count - 1, run.gather_ns);
    slots(run.count - 1, run.count, next != nullptr ? next->gather_ns : 0);
  }
  return total_ns + std::max(scatter_ns, before_ns) + between_ns;
}

std::vector<FsdpMove> pass_moves(std::span<const FsdpOperations> runs) {
  std::vector<FsdpOperations> operations;  // one by one
  for (const FsdpOperations& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      operations.push_back(run);
      operations.back().compute_ns = until(run, i + 1) - until(run, i);
    }
  }
  std::vector<FsdpMove> moves;
  int64_t free_ns = 0;
  const auto add = [&](size_t operation, Movement movement, int64_t takes_ns) {
    if (takes_ns > 0)
      moves.push_back({static_cast<int64_t>(operation), movement, free_ns, free_ns + takes_ns});
    return takes_ns;
  };
  const size_t count = operations.size();
  const auto gather = [&](size_t of) {
    if (of < count) free_ns += add(of, Movement::kGather, operations[of].gather_ns);
  };
  // Sums the gradients of the operations before i.
  const auto sum = [&](size_t i) {
    int64_t takes_ns = 0;
    if (i > 1) takes_ns = add(i - 2, Movement::kBetween, operations[i - 2].between_ns);
    if (i > 0 && i <= count)
      takes_ns = std::max(takes_ns, add(i - 1, Movement::kScatter, operations[i - 1].scatter_ns));
    free_ns += takes_ns;
  };
  if (count == 0) return moves;
  gather(0);
  for (size_t i = 0; i < count; ++i) {
    const int64_t computed_ns = free_ns + operations[i].compute_ns;
    gather(i + 1);
    sum(i);
    free_ns = std::max(free_ns, computed_ns);
  }
  sum(count);
  sum(count + 1);
  return moves;
}

}  // namespace sluice::cost
