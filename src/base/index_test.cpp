#include "base/index.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

namespace sluice::base {
namespace {

using LoadOfTest = Index<struct OneKind>;
using PartOfTest = Index<struct OtherKind>;

static_assert(!std::is_convertible_v<size_t, LoadOfTest>);
static_assert(!std::is_convertible_v<int, LoadOfTest>);
static_assert(!std::is_convertible_v<PartOfTest, LoadOfTest>);
static_assert(!std::is_assignable_v<LoadOfTest&, PartOfTest>);
static_assert(sizeof(LoadOfTest) == sizeof(int32_t));

TEST(Index, IndexesAVectorAndKnowsWhenItIsOfNone) {
  const std::vector<int> squares = {0, 1, 4, 9};
  int sum = 0;
  for (LoadOfTest at(0); at < squares.size(); ++at) sum += squares[at];
  EXPECT_EQ(sum, 14);
  EXPECT_TRUE(LoadOfTest(0).exists());
  EXPECT_FALSE(LoadOfTest().exists());
  EXPECT_LT(LoadOfTest(1), LoadOfTest(2));
  EXPECT_LT(LoadOfTest(), LoadOfTest(0));
}

}  // namespace
}  // namespace sluice::base
