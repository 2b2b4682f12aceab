#include "plan/growth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/bubble.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

constexpr int kWorld = 8;

TEST(Growth, SizesGrowUpToTheLargestAndHoldTheWork) {
  const cost::CostModel cost = test_cost(128'000'000, 8);
  for (const int pp : {2, 4}) {
    const SchemeCost scheme(strategy::Scheme{1, pp, 1}, cost, kWorld);
    const int64_t most_ns = 50 * scheme.floors().constant_ns(pp - 1);
    const int64_t work_ns = 6 * most_ns;
    const Growth growth(scheme, work_ns, most_ns);
    const std::vector<int64_t> sizes = growth.sizes_ns(10);
    EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
    EXPECT_LT(sizes.front(), most_ns / 4);
    EXPECT_EQ(sizes.back(), most_ns);
    EXPECT_GE(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), work_ns);
  }
}

TEST(Growth, TooFewForTheLargestAreLargerAndEven) {
  const cost::CostModel cost = test_cost(128'000'000, 8);
  const SchemeCost scheme(strategy::Scheme{1, 2, 1}, cost, kWorld);
  const int64_t work_ns = 1000 * scheme.floors().constant_ns(1);
  EXPECT_EQ(Growth(scheme, work_ns, work_ns / 10).sizes_ns(4), std::vector<int64_t>(4, work_ns / 4));
}

TEST(Growth, DearerConstantsMakeFewerMicroBatches) {
  const cost::CostModel cost = test_cost(128'000'000, 8);
  const SchemeCost scheme(strategy::Scheme{1, 4, 1}, cost, kWorld);
  const int64_t constant_ns = scheme.floors().constant_ns(3);
  const int less = Growth(scheme, 20 * constant_ns, 20 * constant_ns).best_count(1, 100);
  const int more = Growth(scheme, 2000 * constant_ns, 2000 * constant_ns).best_count(1, 100);
  EXPECT_LT(less, more);
  EXPECT_EQ(Growth(scheme, 2000 * constant_ns, 2000 * constant_ns).best_count(1, 2), 2);
}

}  // namespace
}  // namespace sluice::plan
