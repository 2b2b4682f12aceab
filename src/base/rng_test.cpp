#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/permutation.h"
#include "base/permutation_order.h"
#include "base/permutation_table.h"

namespace sluice::base {
namespace {

TEST(Rng, DrawsAreFixedForever) {
  // Checkpoints and plans depend on these bits.
  EXPECT_EQ(random_bits(1, 2, 3), random_bits(1, 2, 3));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 2, 4));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 3, 3));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(2, 2, 3));
}

TEST(Rng, NormalHasItsMoments) {
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    const double draw = random_normal(5, 0, static_cast<uint64_t>(i));
    sum += draw;
    squares += draw * draw;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.02);
}

TEST(Rng, BelowStaysBelowAndIsEven) {
  Rng rng(3);
  std::vector<int> counts(6);
  for (int i = 0; i < 60000; ++i) ++counts[rng.below(6)];
  for (int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(Permutation, IsOneForEverySize) {
  for (uint64_t size : {1u, 2u, 3u, 17u, 256u, 1000u}) {
    const Permutation permutation(size, 11, 4);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t image = permutation.at(i);
      ASSERT_LT(image, size);
      EXPECT_FALSE(seen[image]);
      seen[image] = true;
    }
  }
}

TEST(Permutation, DiffersByStream) {
  const Permutation first(1000, 11, 0);
  const Permutation second(1000, 11, 1);
  int equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) equal += first.at(i) == second.at(i);
  EXPECT_LT(equal, 20);
}

TEST(Permutation, OrderListsTheSameValues) {
  for (const uint64_t size : {1, 2, 3, 700, 4096, 4097, 20'000}) {
    const Permutation permutation(size, 11, 5);
    const PermutationOrder order(size, 11, 5);
    for (const uint64_t begin : {uint64_t{0}, size / 3}) {
      std::vector<uint64_t> values(size - begin);
      order.list(begin, values);
      for (uint64_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], permutation.at(begin + i)) << size;
    }
  }
}

TEST(Permutation, TableHoldsTheSameValues) {
  for (const uint64_t size : {1u, 2u, 3u, 17u, 256u, 257u, 1000u, 70'000u}) {
    for (const uint64_t stream : {uint64_t{0}, uint64_t{5}, uint64_t{3} << 40}) {
      const Permutation permutation(size, 11, stream);
      const PermutationTable table(size, 11, stream);
      for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(table.at(i), permutation.at(i)) << size << " " << i;
    }
  }
}

}  // namespace
}  // namespace sluice::base
