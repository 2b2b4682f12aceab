#include "plan/place_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/rng.h"
#include "model/expert_slots.h"

namespace sluice::plan {
namespace {

using testing::ElementsAre;

ExpertUse skewed(int64_t experts, double power, uint64_t seed) {
  base::Rng rng(seed, 1);
  ExpertUse use;
  for (int64_t expert = 0; expert < experts; ++expert)
    use.assignments.push_back(std::llround(1e6 / std::pow(static_cast<double>(expert + 1), power)));
  for (size_t i = use.assignments.size() - 1; i > 0; --i)
    std::swap(use.assignments[i],
              use.assignments[static_cast<size_t>(rng.between(0, static_cast<int64_t>(i)))]);
  return use;
}

TEST(ExpertPlacementPolicy, HeavyOnesLieApart) {
  EXPECT_THAT(placed_experts({{9, 8, 2, 1}, {}}, 2, 0), ElementsAre(0, 3, 1, 2));
  EXPECT_THAT(placed_experts({{0, 0, 0, 0}, {}}, 4, 0), ElementsAre(0, 1, 2, 3));
}

TEST(ExpertPlacementPolicy, TheMostVisitedHasASeatOnEveryLane) {
  const std::vector<int> seats = placed_experts({{90, 1, 1, 1}, {}}, 4, 1);
  for (int lane = 0; lane < 4; ++lane) EXPECT_EQ(seats[static_cast<size_t>(2 * lane)], 0);
  EXPECT_LT(model::expert_load_imbalance(std::vector<int64_t>{90, 1, 1, 1}, seats, 4), 1.04);
}

TEST(ExpertPlacementPolicy, AnyUseGetsAPlacement) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    base::Rng rng(seed, 5);
    const int lanes = static_cast<int>(rng.between(1, 9));
    const int64_t experts = lanes * rng.between(1, 8);
    const int spare = static_cast<int>(rng.between(0, experts - experts / lanes));
    ExpertUse use = skewed(experts, rng.below(3) * 0.8, seed);
    const bool pairs = rng.below(2) == 0;
    for (int64_t i = 0; pairs && i < experts * experts; ++i)
      use.coactivations.push_back(i / experts == i % experts ? 0 : rng.between(0, 9));
    strategy::ExpertPlacement placement;
    placement.layers.push_back(placed_experts(use, lanes, spare));
    EXPECT_EQ(strategy::placement_fault(placement, lanes), "") << seed;
    EXPECT_EQ(std::ssize(placement.layers[0]), experts + lanes * spare);
    EXPECT_EQ(std::ranges::max(placement.layers[0]), experts - 1);
  }
}

// Visits follow Zipf's law, and lanes have several experts each: spare slots leave almost no imbalance.
TEST(ExpertPlacementPolicy, LanesHaveAlike) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const std::vector<ExpertUse> use{skewed(64, 0.7, seed), {}, skewed(64, 1.0, seed + 9)};
    const auto busiest = [&](int spare) {
      return expert_load_imbalance(use, place_experts(use, 8, spare), 8);
    };
    strategy::ExpertPlacement even;
    for (const ExpertUse& layer : use)
      even.layers.push_back(layer.assignments.empty() ? std::vector<int>() : model::even_expert_slots(64));
    EXPECT_GT(expert_load_imbalance(use, even, 8), 1.5);
    EXPECT_LT(busiest(0), 1.6);  // the most visited one of the second alone has 1.7 of a lane's mean
    EXPECT_LT(busiest(2), 1.01);
  }
}

// Rows choose one of eight families and two of its experts: those of a family come to lie together.
TEST(ExpertPlacementPolicy, ThoseChosenTogetherLieTogether) {
  constexpr int64_t kExperts = 32;
  base::Rng rng(1, 1);
  ExpertUse use{std::vector<int64_t>(kExperts, 0), std::vector<int64_t>(kExperts * kExperts, 0)};
  const auto family_of = [](int64_t expert) { return expert * 5 % 8; };
  for (int64_t a = 0; a < kExperts; ++a) {
    for (int64_t b = 0; b < kExperts; ++b) {
      if (a == b) continue;
      const int64_t rows = family_of(a) == family_of(b) ? 100 + rng.between(0, 4) : rng.between(0, 5);
      use.coactivations[static_cast<size_t>(a * kExperts + b)] += rows;
      use.coactivations[static_cast<size_t>(b * kExperts + a)] += rows;
      use.assignments[static_cast<size_t>(a)] += rows;
      use.assignments[static_cast<size_t>(b)] += rows;
    }
  }
  const std::vector<int> seats = placed_experts(use, 8, 0);
  int apart = 0;
  for (size_t lane = 0; lane < 8; ++lane) {
    std::set<int64_t> families;
    for (size_t at = 0; at < 4; ++at) families.insert(family_of(seats[4 * lane + at]));
    apart += static_cast<int>(families.size()) - 1;
  }
  EXPECT_LE(apart, 2);
  EXPECT_LT(model::expert_load_imbalance(use.assignments, seats, 8), 1.02);
}

}  // namespace
}  // namespace sluice::plan
