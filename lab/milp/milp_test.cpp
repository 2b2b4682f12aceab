#include <gtest/gtest.h>

#include "base/rng.h"
#include "cbc_partition.h"

namespace sluice::tests {
namespace {

TEST(Milp, AgreesWithTheBranchAndBound) {
  int infeasible = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    base::Rng rng(seed, 71);
    std::vector<published::PartitionItem> items;
    for (int64_t i = rng.between(2, 12); i > 0; --i) {
      const int64_t tokens = rng.between(1, 100);
      items.push_back({.work = tokens * tokens + 50 * tokens + 300, .tokens = tokens});
    }
    const published::PartitionOptions options{.bins = static_cast<int>(rng.between(2, 4)),
                                              .capacity_tokens = rng.between(100, 300)};
    const published::Partition own = published::partition(items, options);
    const published::Partition milp = cbc_partition(items, options);
    ASSERT_TRUE(own.proved && milp.proved) << "seed " << seed;
    ASSERT_EQ(own.bins.has_value(), milp.bins.has_value()) << "seed " << seed;
    infeasible += own.bins ? 0 : 1;
    if (own.bins) {
      EXPECT_EQ(own.largest_work, milp.largest_work) << "seed " << seed;
    }
  }
  EXPECT_GT(infeasible, 0);
}

}  // namespace
}  // namespace sluice::tests
