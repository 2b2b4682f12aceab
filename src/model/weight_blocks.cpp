#include "model/weight_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace sluice::model {
namespace {

using base::kWeightBlock;
using base::WeightFormat;

constexpr int64_t kHalf = 32;        // numbers of MXFP4 that share an exponent
constexpr int kExponentBias = 127;   // E8M0's
constexpr int kLargestExponent = 2;  // E2M1's: 4 <= 6 < 8
constexpr float kInt8Largest = 127.0F;

// Order of 4-bit codes in a byte: NF4 has the first of a pair in the high half, MXFP4 in the low.
enum class First : uint8_t { kHigh, kLow };

uint8_t nibble(const std::byte* codes, int64_t i, First first) {
  const auto pair = std::to_integer<uint8_t>(codes[i / 2]);
  return ((i % 2 == 0) == (first == First::kHigh)) ? pair >> 4 : pair & 0xF;
}

void set_nibble(std::byte* codes, int64_t i, First first, uint8_t code) {
  const int shift = ((i % 2 == 0) == (first == First::kHigh)) ? 4 : 0;
  codes[i / 2] |= static_cast<std::byte>(code << shift);
}

float largest(const float* numbers, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(numbers[i]));
  return most;
}

// The nearest code; ties go to the lower one, as with bitsandbytes' thresholds.
uint8_t nf4_code(float x) {
  uint8_t code = 0;
  while (code < 15 && x > (kNf4Values[code] + kNf4Values[code + 1]) / 2) ++code;
  return code;
}

void encode_nf4(const float* numbers, int64_t count, std::byte* block) {
  const float most = largest(numbers, count);
  const float inverse = most > 0 ? 1.0F / most : 0.0F;
  for (int64_t i = 0; i < kWeightBlock; ++i)
    set_nibble(block, i, First::kHigh, nf4_code(i < count ? numbers[i] * inverse : 0.0F));
  set_block_maximum(WeightFormat::kNf4, most, block);
}

void encode_int8(const float* numbers, int64_t count, float maximum, std::byte* block) {
  const float inverse = maximum > 0 ? kInt8Largest / maximum : 0.0F;
  for (int64_t i = 0; i < count; ++i)
    block[i] = static_cast<std::byte>(static_cast<int8_t>(std::nearbyint(numbers[i] * inverse)));
  set_block_maximum(WeightFormat::kInt8, maximum, block);
}

// The nearest code; ties go to the even one.
uint8_t e2m1_code(float x) {
  const float size = std::fabs(x);
  uint8_t code = 0;
  while (code < 7) {
    const float middle = (kE2m1Values[code] + kE2m1Values[code + 1]) / 2;
    if (size < middle || (size == middle && code % 2 == 0)) break;
    ++code;
  }
  return std::signbit(x) ? code | 8 : code;
}

void encode_mxfp4(const float* numbers, int64_t count, std::byte* block) {
  for (int64_t half = 0; half < kWeightBlock / kHalf; ++half) {
    const int64_t begin = half * kHalf, own = std::clamp<int64_t>(count - begin, 0, kHalf);
    const float most = largest(numbers + begin, own);
    const int exponent = most > 0 ? std::clamp(std::ilogb(most) - kLargestExponent, -kExponentBias, 127) : 0;
    for (int64_t i = 0; i < own; ++i)
      set_nibble(block, begin + i, First::kLow, e2m1_code(std::ldexp(numbers[begin + i], -exponent)));
    block[kWeightBlock / 2 + half] = static_cast<std::byte>(exponent + kExponentBias);
  }
}

std::byte* maximum_of(WeightFormat format, std::byte* block) {
  return block + (format == WeightFormat::kNf4 ? kWeightBlock / 2 : kWeightBlock);
}

}  // namespace

float block_maximum(WeightFormat format, const std::byte* block) {
  float maximum = 0;
  std::memcpy(&maximum, maximum_of(format, const_cast<std::byte*>(block)), sizeof maximum);
  return maximum;
}

void set_block_maximum(WeightFormat format, float maximum, std::byte* block) {
  std::memcpy(maximum_of(format, block), &maximum, sizeof maximum);
}

void encode_block(WeightFormat format, const float* numbers, int64_t count, float maximum, std::byte* block) {
  std::memset(block, 0, static_cast<size_t>(base::block_bytes(format)));
  switch (format) {
    case WeightFormat::kNf4: return encode_nf4(numbers, count, block);
    case WeightFormat::kInt8: return encode_int8(numbers, count, maximum, block);
    case WeightFormat::kMxfp4: return encode_mxfp4(numbers, count, block);
    case WeightFormat::kPlain: break;
  }
  SLUICE_ASSERT(false, "blocks of a matrix that is not coded");
}

void decode_block(WeightFormat format, const std::byte* block, float* numbers) {
  switch (format) {
    case WeightFormat::kNf4: {
      const float most = block_maximum(format, block);
      for (int64_t i = 0; i < kWeightBlock; ++i)
        numbers[i] = kNf4Values[nibble(block, i, First::kHigh)] * most;
      return;
    }
    case WeightFormat::kInt8: {
      const float most = block_maximum(format, block);
      for (int64_t i = 0; i < kWeightBlock; ++i)
        numbers[i] = static_cast<float>(static_cast<int8_t>(block[i])) * most * kInt8Step;
      return;
    }
    case WeightFormat::kMxfp4:
      for (int64_t i = 0; i < kWeightBlock; ++i) {
        const int exponent = std::to_integer<int>(block[kWeightBlock / 2 + i / kHalf]) - kExponentBias;
        numbers[i] = std::ldexp(kE2m1Values[nibble(block, i, First::kLow)], exponent);
      }
      return;
    case WeightFormat::kPlain: break;
  }
  SLUICE_ASSERT(false, "blocks of a matrix that is not coded");
}

}  // namespace sluice::model
