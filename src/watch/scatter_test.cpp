#include "watch/scatter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "watch/figures.h"

namespace sluice::watch {
namespace {

// Adds steps of `ranks` ranks, which vary together by a tenth and each by `own`; from `step` on.
void add_steps(Scatter& scatter, int ranks, double own, int steps, double factor_of_rank_1 = 1) {
  for (int step = 0; step < steps; ++step) {
    std::vector<double> slowdowns;
    for (int rank = 0; rank < ranks; ++rank) {
      const double shared = 0.1 * base::random_normal(5, 0, static_cast<uint64_t>(step));
      const double alone =
          own * base::random_normal(6, static_cast<uint64_t>(rank), static_cast<uint64_t>(step));
      slowdowns.push_back((rank == 1 ? factor_of_rank_1 : 1) * std::exp(shared + alone));
    }
    scatter.add(slowdowns);
  }
}

TEST(Scatter, IsWhatRanksDoNotShare) {
  for (const double own : {0.01, 0.05}) {
    double mean = 0;
    Scatter scatter;
    for (int window = 0; window < 40; ++window) {
      add_steps(scatter, 16, own, Scatter::kSteps);
      mean += scatter.deviation() / 40;
    }
    EXPECT_NEAR(mean, own, 0.15 * own);
  }
}

TEST(Scatter, OfTwoRanksIsThatOfEach) {
  Scatter scatter;
  std::vector<double> found;
  double mean = 0;
  for (int window = 0; window < 100; ++window) {
    for (int step = 0; step < Scatter::kSteps; ++step) {
      const auto counter = static_cast<uint64_t>(window * Scatter::kSteps + step);
      scatter.add(std::vector<double>{std::exp(0.04 * base::random_normal(1, 1, counter)),
                                      2 * std::exp(0.04 * base::random_normal(1, 2, counter))});
    }
    mean += scatter.deviation() / 100;
  }
  EXPECT_NEAR(mean, 0.04, 0.004);
}

TEST(Scatter, IsUnknownAtFirstAndForOneRank) {
  Scatter scatter;
  add_steps(scatter, 4, 0.05, Scatter::kSteps - 1);
  EXPECT_EQ(scatter.deviation(), 0);
  add_steps(scatter, 4, 0.05, 1);
  EXPECT_GT(scatter.deviation(), 0);
  add_steps(scatter, 1, 0.05, 2 * Scatter::kSteps);
  EXPECT_EQ(scatter.deviation(), 0) << "the other ranks left";
  Scatter idle;
  for (int step = 0; step < 2 * Scatter::kSteps; ++step)
    idle.add(std::vector<double>{1.0 + step, kNotKnown, 0});
  EXPECT_EQ(idle.deviation(), 0) << "one rank computes";
}

TEST(Scatter, IsNoMoreWhereARankBecomesSlowForGood) {
  Scatter alike, slowed;
  add_steps(alike, 4, 0.02, Scatter::kSteps);
  add_steps(slowed, 4, 0.02, Scatter::kSteps / 2);
  add_steps(slowed, 4, 0.02, Scatter::kSteps / 2, 2);
  EXPECT_LT(slowed.deviation(), 2 * alike.deviation());
}

}  // namespace
}  // namespace sluice::watch
