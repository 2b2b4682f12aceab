#include "cost/quadratic.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace sluice::cost {
namespace {

TEST(Quadratic, CountsTheConstantOnceAndRoundsToNearest) {
  const Quadratic times = Quadratic::from_ns(0.25, 3, 40);
  const std::vector<int64_t> lengths = {10, 20};
  EXPECT_EQ(times.of_sequences(lengths), 25 + 30 + 100 + 60 + 40);
  const std::vector<int64_t> one = {1};
  EXPECT_EQ(Quadratic::from_ns(0, 0.5, 0).of_sequences(one), 1);
  EXPECT_EQ(Quadratic::from_ns(0, 0.499, 0).of_sequences(one), 0);
  EXPECT_EQ(Quadratic::from_ns(1, 1, 5).of_sequences({}), 5);
}

TEST(Quadratic, EqualsExtendedPrecisionOnRandomLengths) {
  base::Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    const Quadratic times{rng.between(0, int64_t{1} << 34), rng.between(0, int64_t{1} << 44),
                          rng.between(0, 1000)};
    std::vector<int64_t> lengths;
    long double expected = static_cast<long double>(times.c_ns);
    for (int64_t i = rng.between(0, 5); i > 0; --i) {
      const int64_t length = rng.between(0, 1 << 20);
      lengths.push_back(length);
      const auto l = static_cast<long double>(length);
      expected +=
          (static_cast<long double>(times.a) * l * l + static_cast<long double>(times.b) * l) / 0x1p32L;
    }
    const auto result = static_cast<long double>(times.of_sequences(lengths));
    ASSERT_NEAR(static_cast<double>(result - expected), 0.0, 0.5001);
  }
}

TEST(Quadratic, HoldsTheLongestSequence) {
  const std::vector<int64_t> lengths = {(int64_t{1} << 31) - 1};
  const int64_t l = lengths[0];
  EXPECT_EQ(Quadratic::from_ns(0x1p-13, 1, 1).of_sequences(lengths), l * l / 8192 + l + 1);
}

TEST(Quadratic, TimesThatCouldNotBeAddedAreRefused) {
  const std::vector<int64_t> lengths = {(int64_t{1} << 31) - 1};
  EXPECT_THROW(Quadratic::from_ns(1, 1, 1).of_sequences(lengths), base::InputError);
}

}  // namespace
}  // namespace sluice::cost
