#include "checkpoint/mxfp4.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::checkpoint {
namespace {

TEST(Mxfp4, ValuesAndScales) {
  // Two experts, two outputs, 64 inputs: place p has value p modulo 16, its block's exponent its number.
  constexpr int64_t kExperts = 2, kOut = 2, kIn = 64;
  std::vector<std::byte> blocks(kExperts * kOut * kIn / 2), scales(kExperts * kOut * kIn / kMxfp4Block);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t low = 2 * i % 16;
    blocks[i] = static_cast<std::byte>(low | (low + 1) << 4U);
  }
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::byte>(127 + i - 3);
  const Mxfp4Matrix matrix{blocks.data(), scales.data(), kIn, kOut};
  EXPECT_EQ(matrix.value(0, 0, 0), 0.0F);
  EXPECT_EQ(matrix.value(0, 1, 0), 0.5F / 8);
  EXPECT_EQ(matrix.value(0, 7, 0), 6.0F / 8);
  EXPECT_EQ(matrix.value(0, 9, 0), -0.5F / 8);
  EXPECT_EQ(matrix.value(0, 33, 0), 0.5F / 4);
  EXPECT_EQ(matrix.value(0, 2, 1), 1.0F / 2);
  EXPECT_EQ(matrix.value(1, 47, 1), -6.0F * 16);
}

}  // namespace
}  // namespace sluice::checkpoint
