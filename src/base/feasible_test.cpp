#include "base/feasible.h"

#include <gtest/gtest.h>

#include <memory>

namespace sluice::base {
namespace {

Feasible<std::unique_ptr<int>> half_of(int value) {
  if (value % 2 != 0) return Infeasible{"3 is odd: take 4"};
  return std::make_unique<int>(value / 2);
}

TEST(Feasible, HoldsAValueOrWhyThereIsNone) {
  Feasible<std::unique_ptr<int>> half = half_of(4);
  ASSERT_TRUE(half);
  EXPECT_EQ(**half, 2);
  EXPECT_EQ(*half_of(6).or_throw(), 3);
  ASSERT_FALSE(half_of(3));
  EXPECT_EQ(half_of(3).none().why, "3 is odd: take 4");
}

TEST(Feasible, BecomesAUsersErrorWhereNothingIsLeftToTry) {
  const auto message_of = [](const std::string& what) -> std::string {
    try {
      half_of(3).or_throw(what);
    } catch (const InfeasibleError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message_of(""), "3 is odd: take 4");
  EXPECT_EQ(message_of("step 7"), "step 7: 3 is odd: take 4");
}

}  // namespace
}  // namespace sluice::base
