// Codecs against their definition number by number, in the mean without error, and what they do to what isn't
// finite.
#include "runtime/wire_codec.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace sluice::runtime {
namespace {

using strategy::Codec;
using strategy::coded_bytes;

constexpr Codec kAll[] = {Codec::kBFloat16, Codec::kInt8, Codec::kInt4};

at::Tensor there_and_back(Codec codec, const at::Tensor& x, uint64_t seed) {
  const at::Tensor bytes = encode(codec, x, seed);
  EXPECT_EQ(bytes.numel(), coded_bytes(codec, x.numel(), x.element_size()));
  const at::Tensor y = at::full_like(x, 777.0);
  decode(codec, bytes, y);
  return y;
}

// Element i of the transform of group g of x: Σ_j ±x_j ÷ √128, with minus if i and j share an odd number of
// bits.
double transformed(const std::vector<double>& x, size_t group, int i) {
  double sum = 0;
  for (int j = 0; j < 128; ++j) {
    const size_t at = group * 128 + static_cast<size_t>(j);
    const double value = at < x.size() ? x[at] : 0;
    sum += std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? value : -value;
  }
  return sum / std::sqrt(128.0);
}

TEST(WireCodec, NumbersComeBackWithinAStepOfTheirGroup) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t numbers : {1, 127, 128, 129, 1000}) {
      const at::Tensor x =
          at::randn({numbers}, at::kDouble).mul(at::randn({numbers}, at::kDouble).mul(3).exp()).to(type);
      const at::Tensor wide = x.to(at::kDouble);
      const std::vector<double> values(wide.data_ptr<double>(), wide.data_ptr<double>() + numbers);
      const at::Tensor rounded = there_and_back(Codec::kBFloat16, x, 1);
      EXPECT_TRUE(at::equal(rounded, x.to(at::kBFloat16).to(type)));
      const at::Tensor of8 = there_and_back(Codec::kInt8, x, 1).to(at::kDouble);
      const at::Tensor of4 = there_and_back(Codec::kInt4, x, 1).to(at::kDouble);
      const std::vector<double> back(of4.data_ptr<double>(), of4.data_ptr<double>() + numbers);
      for (int64_t begin = 0; begin < numbers; begin += 128) {
        const int64_t own = std::min<int64_t>(128, numbers - begin);
        const at::Tensor group = wide.narrow(0, begin, own);
        const double step = group.abs().max().item<double>() / 127 * 1.0001;
        EXPECT_LE((of8.narrow(0, begin, own) - group).abs().max().item<double>(), step);
        // With 4 bits transforms differ by up to a step; only whole groups are checked.
        if (own < 128) continue;
        double most = 0, apart = 0;
        for (int i = 0; i < 128; ++i) {
          const auto index = static_cast<size_t>(begin / 128);
          most = std::max(most, std::abs(transformed(values, index, i)));
          apart = std::max(apart, std::abs(transformed(values, index, i) - transformed(back, index, i)));
        }
        EXPECT_LE(apart, most / 7 * 1.0001);
      }
    }
  }
}

TEST(WireCodec, RoundsWithoutErrorInTheMeanAndAlikeForASeed) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({300}, at::kFloat);
  for (const Codec codec : {Codec::kInt8, Codec::kInt4}) {
    EXPECT_TRUE(at::equal(encode(codec, x, 7), encode(codec, x, 7)));
    EXPECT_FALSE(at::equal(encode(codec, x, 7), encode(codec, x, 8)));
    constexpr int kTimes = 2000;
    at::Tensor mean = at::zeros({300}, at::kDouble), square = at::zeros({300}, at::kDouble);
    for (int time = 0; time < kTimes; ++time) {
      const at::Tensor error =
          (there_and_back(codec, x, static_cast<uint64_t>(time) << 20) - x).to(at::kDouble);
      mean.add_(error / kTimes);
      square.add_(error.square() / kTimes);
    }
    // No mean of 300 is more than five of its deviations from 0.
    EXPECT_LE((mean.abs() / (square / kTimes).sqrt().add(1e-12)).max().item<double>(), 5.0);
  }
}

// With 8 bits codes are equal; with 4 bits the order of a sum may round a code the other way.
TEST(WireCodec, IsAsByLibraryOperators) {
  at::manual_seed(5);
  for (const int64_t numbers : {1, 128, 200, 5000}) {
    const at::Tensor x = at::randn({numbers}, at::kFloat);
    EXPECT_TRUE(at::equal(encode(Codec::kInt8, x, 9), aten::encode(Codec::kInt8, x, 9)));
    const at::Tensor own = encode(Codec::kInt4, x, 9), theirs = aten::encode(Codec::kInt4, x, 9);
    EXPECT_LE((own != theirs).sum().item<int64_t>(), own.numel() / 10 + 4);
    for (const Codec codec : {Codec::kInt8, Codec::kInt4}) {
      const at::Tensor y = at::empty_like(x), z = at::empty_like(x), bytes = encode(codec, x, 9);
      decode(codec, bytes, y);
      aten::decode(codec, bytes, z);
      EXPECT_LE((y - z).abs().max().item<double>(), 1e-5);
    }
  }
}

// The transform spreads a large number over its group; without it the other numbers would come back as zero.
TEST(WireCodec, OneLargeNumberDoesNotTakeAllOfAGroup) {
  at::Tensor x = at::full({128}, 0.05, at::kFloat);
  x[17] = 10.0;
  const double error = (there_and_back(Codec::kInt4, x, 3) - x).norm().item<double>();
  EXPECT_LE(error, 0.6 * 10.0 / 7 * std::sqrt(128.0) / 2);
}

TEST(WireCodec, WhatIsNotFiniteIsSeen) {
  for (const Codec codec : kAll) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      at::Tensor x = at::ones({256}, at::kFloat);
      x[130] = bad;
      const at::Tensor y = there_and_back(codec, x, 1);
      EXPECT_FALSE(y.isfinite().all().item<bool>());
      EXPECT_TRUE(y.narrow(0, 0, 128).isfinite().all().item<bool>());
    }
    const at::Tensor zeros = at::zeros({200}, at::kFloat);
    EXPECT_TRUE(at::equal(there_and_back(codec, zeros, 1), zeros));
  }
}

}  // namespace
}  // namespace sluice::runtime
