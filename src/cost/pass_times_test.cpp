#include "cost/pass_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace sluice::cost {
namespace {

// Operation by operation.
int64_t slowly(const std::vector<FsdpOperations>& runs) {
  std::vector<FsdpOperations> all;
  for (const FsdpOperations& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      all.push_back(run);
      all.back().compute_ns = run.compute_ns * (i + 1) / run.count - run.compute_ns * i / run.count;
    }
  }
  if (all.empty()) return 0;
  const FsdpOperations none;
  const auto at = [&](size_t i) { return i < all.size() ? all[i] : none; };  // size_t(−1) too
  const auto sum_ns = [&](size_t i) { return std::max(at(i).scatter_ns, at(i - 1).between_ns); };
  int64_t total = all.front().gather_ns + sum_ns(all.size() - 1) + all.back().between_ns;
  for (size_t i = 0; i < all.size(); ++i)
    total += std::max(all[i].compute_ns, at(i + 1).gather_ns + sum_ns(i - 1));
  return total;
}

TEST(PassTimes, AreTheComputeTimeWhereNothingMoves) {
  base::Rng rng(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<FsdpOperations> runs;
    int64_t compute_ns = 0;
    for (int64_t r = rng.between(0, 4); r > 0; --r) {
      runs.push_back({rng.between(0, 9), rng.between(0, 1'000'003)});
      if (runs.back().count > 0) compute_ns += runs.back().compute_ns;
    }
    EXPECT_EQ(pass_ns(runs), compute_ns);
  }
}

// Let w = W ÷ L. A forward of L layers takes g + max(W, (L − 1)·g + w). A backward takes
// g + max(w, g) + (L − 2)·max(w, g + s) + max(w, s) + s.
TEST(PassTimes, FollowTheClosedFormOfEqualLayers) {
  for (const int64_t w : {5, 20, 60}) {
    for (const int64_t layers : {1, 2, 3, 8}) {
      const int64_t g = 11, s = 17, whole = w * layers;
      const std::vector<FsdpOperations> forward = {{layers, whole, g, 0}};
      EXPECT_EQ(pass_ns(forward), g + std::max(whole, (layers - 1) * g + w));
      const std::vector<FsdpOperations> backward = {{layers, whole, g, s}};
      EXPECT_EQ(pass_ns(backward),
                layers == 1 ? g + w + s
                            : g + std::max(w, g) + (layers - 2) * std::max(w, g + s) + std::max(w, s) + s);
    }
  }
}

std::vector<FsdpOperations> random_runs(base::Rng& rng, int64_t fewest_operations) {
  std::vector<FsdpOperations> runs;
  for (int64_t r = rng.between(1, 4); r > 0; --r) {
    runs.push_back({rng.between(fewest_operations, 9), rng.between(0, 500), rng.between(0, 60),
                    rng.between(0, 60), rng.between(0, 1) == 0 ? 0 : rng.between(0, 90)});
  }
  return runs;
}

int64_t operations_of(const std::vector<FsdpOperations>& runs) {
  int64_t count = 0;
  for (const FsdpOperations& run : runs) count += run.count;
  return count;
}

// Parts of a run differ by a nanosecond, so each may be rounded the other way.
TEST(PassTimes, EqualWhatOperationsTakeOneByOne) {
  base::Rng rng(2);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<FsdpOperations> runs = random_runs(rng, 0);
    const int64_t operations = operations_of(runs);
    EXPECT_NEAR(static_cast<double>(pass_ns(runs)), static_cast<double>(slowly(runs)),
                static_cast<double>(operations));
  }
}

// Each gather before its operation, sums behind it, in runs before between runs; the last one ends with the
// cell.
TEST(PassMoves, FillTheSameTime) {
  base::Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<FsdpOperations> runs = random_runs(rng, 1);
    const int64_t operations = operations_of(runs);
    runs.back().between_ns += 1;
    int64_t end_ns = 0, begun_ns = 0, moved_ns = 0, expected_ns = 0;
    std::vector<int64_t> summed_ns(static_cast<size_t>(operations), 0);
    for (const FsdpMove& move : pass_moves(runs)) {
      EXPECT_GE(move.start_ns, begun_ns);
      EXPECT_GT(move.end_ns, move.start_ns);
      begun_ns = move.start_ns;
      end_ns = std::max(end_ns, move.end_ns);
      moved_ns += move.end_ns - move.start_ns;
      if (move.movement == Movement::kScatter) summed_ns[static_cast<size_t>(move.operation)] = move.end_ns;
      if (move.movement != Movement::kBetween) continue;
      EXPECT_GE(move.start_ns, summed_ns[static_cast<size_t>(move.operation)]);
    }
    for (const FsdpOperations& run : runs)
      expected_ns += run.count * (run.gather_ns + run.scatter_ns + run.between_ns);
    EXPECT_EQ(moved_ns, expected_ns);
    EXPECT_NEAR(static_cast<double>(end_ns), static_cast<double>(pass_ns(runs)),
                static_cast<double>(operations));
  }
}

}  // namespace
}  // namespace sluice::cost
