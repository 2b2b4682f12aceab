#include "model/expert_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/rng.h"

namespace sluice::model {
namespace {

using testing::ElementsAre;

TEST(ExpertSeats, OnesTakeAll) {
  EXPECT_THAT(assignments_by_slot(std::vector<int64_t>{5, 0, 7, 1}, std::vector{2, 0, 3, 1}, 2),
              ElementsAre(7, 5, 1, 0));
  EXPECT_DOUBLE_EQ(expert_load_imbalance(std::vector<int64_t>{5, 0, 7, 1}, std::vector{2, 0, 3, 1}, 2),
                   12 * 2 / 13.0);
  EXPECT_DOUBLE_EQ(expert_load_imbalance(std::vector<int64_t>{0, 0}, std::vector{0, 1}, 2), 1);
}

// A lane that is busy with its own experts gets no visits that other lanes can take.
TEST(ExpertSeats, SeveralFillTheEmptiestLanes) {
  EXPECT_THAT(assignments_by_slot(std::vector<int64_t>{10, 3, 0, 9}, std::vector{0, 1, 0, 2, 0, 3}, 3),
              ElementsAre(3, 3, 7, 0, 0, 9));
  EXPECT_THAT(assignments_by_slot(std::vector<int64_t>{7, 0, 0}, std::vector{0, 1, 0, 2}, 2),
              ElementsAre(4, 0, 3, 0));
}

TEST(ExpertSeats, AnyVisitsAreDealtAndNearlyEven) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 3);
    const int lanes = static_cast<int>(rng.between(1, 8));
    const int64_t experts = lanes * rng.between(1, 6);
    std::vector<int64_t> visits;
    for (int64_t expert = 0; expert < experts; ++expert)
      visits.push_back(rng.below(4) == 0 ? 0 : rng.between(0, 1000));
    // Every lane has every expert, so visits are as even as possible.
    std::vector<int> seats;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::vector<int> all = even_expert_slots(experts);
      seats.insert(seats.end(), all.begin(), all.end());
    }
    const std::vector<int64_t> dealt = assignments_by_slot(visits, seats, lanes);
    std::vector<int64_t> sums(visits.size(), 0), of_lane(static_cast<size_t>(lanes), 0);
    for (size_t seat = 0; seat < seats.size(); ++seat) {
      EXPECT_GE(dealt[seat], 0);
      sums[static_cast<size_t>(seats[seat])] += dealt[seat];
      of_lane[seat / static_cast<size_t>(experts)] += dealt[seat];
    }
    EXPECT_EQ(sums, visits);
    EXPECT_LE(std::ranges::max(of_lane) - std::ranges::min(of_lane), experts) << seed;
  }
}

}  // namespace
}  // namespace sluice::model
