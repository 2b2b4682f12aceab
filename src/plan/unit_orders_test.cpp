#include "plan/unit_orders.h"

#include <gtest/gtest.h>

namespace sluice::plan {
namespace {

TEST(UnitOrders, DescendingOnesPeakInTheMiddle) {
  EXPECT_EQ(peaked<int>({5, 4, 3, 2, 1}), (std::vector<int>{1, 3, 5, 4, 2}));
  EXPECT_EQ(peaked<int>({2, 1}), (std::vector<int>{1, 2}));
}

TEST(UnitOrders, TheLongestIsLastAndTheNextOneFirst) {
  EXPECT_EQ(longest_outside(std::vector<int64_t>{3, 9, 5, 4}), (std::vector<size_t>{2, 3, 0, 1}));
  EXPECT_EQ(longest_outside(std::vector<int64_t>{9, 3}), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(longest_outside(std::vector<int64_t>{7}), (std::vector<size_t>{0}));
  EXPECT_TRUE(longest_outside({}).empty());
}

}  // namespace
}  // namespace sluice::plan
