#include "comm/transport.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "comm/exchange.h"

namespace sluice::comm {
namespace {

uint16_t truncated(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

float widened(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// The nearest bfloat16, found by trying both neighbours; ties go to the even one.
uint16_t nearest(float value) {
  const uint16_t low = truncated(value);
  const auto high = static_cast<uint16_t>(low + 1);
  const double to_low = std::abs(static_cast<double>(value) - widened(low));
  const double to_high = std::abs(static_cast<double>(widened(high)) - value);
  if (to_low != to_high) return to_low < to_high ? low : high;
  return (low & 1U) == 0 ? low : high;
}

TEST(Accumulate, Float32AddsEveryElementWhateverTheCount) {
  for (const int64_t count : {0, 1, 31, 32, 33, 100}) {
    std::vector<float> a(count);
    std::vector<float> b(count);
    std::iota(a.begin(), a.end(), 0.5F);
    std::iota(b.begin(), b.end(), 100.0F);
    accumulate(a.data(), b.data(), count, DType::kFloat32);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(a[i], 100.5F + 2.0F * static_cast<float>(i));
  }
}

TEST(Accumulate, Float64KeepsDoublePrecision) {
  std::vector<double> a(40, 1.0);
  const std::vector<double> b(40, 0x1p-40);
  accumulate(a.data(), b.data(), 40, DType::kFloat64);
  EXPECT_EQ(a[0], 1.0 + 0x1p-40);
  EXPECT_EQ(a[39], 1.0 + 0x1p-40);
}

TEST(Accumulate, BFloat16RoundsToNearestEven) {
  base::Rng rng(7);
  constexpr int64_t kCount = 5000;
  std::vector<uint16_t> a(kCount);
  std::vector<uint16_t> b(kCount);
  std::vector<uint16_t> expected(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    a[i] = truncated(static_cast<float>(rng.uniform() * 4 - 2));
    b[i] = truncated(static_cast<float>(rng.uniform() * 4 - 2));
    expected[i] = nearest(widened(a[i]) + widened(b[i]));
  }
  accumulate(a.data(), b.data(), kCount, DType::kBFloat16);
  EXPECT_EQ(a, expected);
}

TEST(Accumulate, BFloat16KeepsInfinitiesAndNans) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<uint16_t> a = {truncated(infinity), truncated(infinity), 0x7F7F};
  const std::vector<uint16_t> b = {truncated(1.0F), truncated(-infinity), 0x7F7F};
  accumulate(a.data(), b.data(), 3, DType::kBFloat16);
  EXPECT_EQ(widened(a[0]), infinity);
  EXPECT_TRUE(std::isnan(widened(a[1])));
  EXPECT_EQ(widened(a[2]), infinity);
}

TEST(LoneCommunicator, CopiesAtOnce) {
  const auto lone = lone_communicator("me", 5);
  EXPECT_EQ(lone->ranks(), std::vector<int>{5});
  const std::vector<float> in = {1, 2, 3};
  const std::vector<int64_t> bytes = {12};
  std::vector<float> out(3);
  lone->all_gather(in.data(), out.data(), 12);
  EXPECT_EQ(out, in);
  out.assign(3, 0);
  lone->all_to_all(in.data(), bytes, out.data(), bytes)->wait();
  EXPECT_EQ(out, in);
  out.assign(3, 0);
  lone->reduce_scatter(in.data(), out.data(), 3, DType::kFloat32)->wait();
  EXPECT_EQ(out, in);
  EXPECT_THROW(lone->send(in.data(), 12, 0), base::AssertionError);
}

}  // namespace
}  // namespace sluice::comm
