#include "runtime/moment.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/simd.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {
namespace {

using strategy::codec_groups;
using strategy::kCodecGroup;

constexpr int kFloatMantissa = 23;
// Exponents of groups that come back as NaN. So do groups above the largest exponent with a float inverse.
constexpr uint32_t kNoNumbers = 255, kMostExponent = 253;

// Codes of magnitudes below 1. From `least` on they are floats with kMantissa bits of mantissa. Below it
// steps are as wide as just above. The largest is a step below 1.
template <bool kSigned>
struct Codes {
  static constexpr int kMantissa = 4;
  static constexpr int32_t kMost = kSigned ? 127 : 255;
  static constexpr int32_t kSteps = 1 << kMantissa;  // from one power of two to the next, and below `least`
  static constexpr int kOctaves = (kMost + 1) / kSteps - 1;
  static constexpr int kCutBits = kFloatMantissa - kMantissa;
  static constexpr uint32_t kLeastBits = static_cast<uint32_t>(127 - kOctaves) << kFloatMantissa;
  static constexpr float kLeast = std::bit_cast<float>(kLeastBits);

  // `random`: as many bits as are cut off.
  [[gnu::always_inline]] static int32_t of(float magnitude, uint32_t random) {
    const bool small = magnitude < kLeast;
    const auto bits = std::bit_cast<uint32_t>(small ? magnitude + kLeast : magnitude);
    const auto steps = static_cast<int32_t>((bits - kLeastBits + random) >> kCutBits);
    return std::min(small ? steps : steps + kSteps, kMost);
  }
  [[gnu::always_inline]] static float number(int32_t code) {
    const auto bits = (static_cast<uint32_t>(code - kSteps) << kCutBits) + kLeastBits;
    return code < kSteps ? static_cast<float>(code) * (kLeast / kSteps) : std::bit_cast<float>(bits);
  }
  // Added before bits are cut off: random, or one half.
  [[gnu::always_inline]] static uint32_t random(int64_t place, Seed seed) {
    return seed ? hashed(salted(place, *seed)) >> (32 - kCutBits) : 1U << (kCutBits - 1);
  }
};

// The exponent of the least power of two above all magnitudes up to `largest`.
[[gnu::always_inline]] inline uint32_t exponent_over(float largest) {
  const uint32_t exponent = (std::bit_cast<uint32_t>(largest) >> kFloatMantissa) + 1;
  return exponent > kMostExponent ? kNoNumbers : exponent;
}

// The inverse of the power of two; any number for a group without numbers.
[[gnu::always_inline]] inline float inverse_of(uint32_t exponent) {
  return std::bit_cast<float>((254U - std::min(exponent, kMostExponent)) << kFloatMantissa);
}

template <bool kSigned, typename T>
SLUICE_SIMD void encode_moment_group(const T* x, int64_t count, int64_t place, Seed seed, uint8_t* codes,
                                     uint8_t* exponent) {
  using Coded = Codes<kSigned>;
  float largest = 0, check = 0;
#pragma omp simd reduction(max : largest) reduction(+ : check)
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(x[i]);
    largest = std::max(largest, std::abs(value));
    check += value - value;
  }
  const uint32_t over = check != 0 || check != check ? kNoNumbers : exponent_over(largest);
  *exponent = static_cast<uint8_t>(over);
  const float inverse = inverse_of(over);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(x[i]);
    int32_t code = Coded::of(std::abs(value) * inverse, Coded::random(place + i, seed));
    if (!kSigned && largest > 0) code = std::max(code, 1);
    codes[i] = static_cast<uint8_t>(kSigned && value < 0 ? code | 128 : code);
  }
}

template <bool kSigned, typename T>
SLUICE_SIMD void decode_moment_group(const uint8_t* codes, int64_t count, uint8_t exponent, T* x) {
  using Coded = Codes<kSigned>;
  const auto power = std::bit_cast<float>(static_cast<uint32_t>(exponent) << kFloatMantissa);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const int32_t code = kSigned ? codes[i] & 127 : codes[i];
    const float value = Coded::number(code) * power;
    x[i] = static_cast<T>(kSigned && codes[i] > 127 ? -value : value);
  }
}

// Calls visit(first, count) for every group.
template <typename Visit>
void for_each_group(int64_t numbers, Visit visit) {
  at::parallel_for(0, codec_groups(numbers), 64, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * kCodecGroup;
      visit(group, first, std::min(kCodecGroup, numbers - first));
    }
  });
}

template <bool kSigned, typename T>
void encode_all_moments(const at::Tensor& x_N, Seed seed, int64_t place, const at::Tensor& codes_N,
                        const at::Tensor& exponents_G) {
  const T* const x = x_N.const_data_ptr<T>();
  auto* const codes = codes_N.mutable_data_ptr<uint8_t>();
  auto* const exponents = exponents_G.mutable_data_ptr<uint8_t>();
  for_each_group(x_N.numel(), [&](int64_t group, int64_t first, int64_t count) {
    encode_moment_group<kSigned>(x + first, count, place + first, seed, codes + first, exponents + group);
  });
}

template <bool kSigned, typename T>
void decode_all_moments(const at::Tensor& codes_N, const at::Tensor& exponents_G, const at::Tensor& x_N) {
  T* const x = x_N.mutable_data_ptr<T>();
  const auto* const codes = codes_N.const_data_ptr<uint8_t>();
  const auto* const exponents = exponents_G.const_data_ptr<uint8_t>();
  for_each_group(x_N.numel(), [&](int64_t group, int64_t first, int64_t count) {
    decode_moment_group<kSigned>(codes + first, count, exponents[group], x + first);
    if (exponents[group] == kNoNumbers) std::fill_n(x + first, count, std::numeric_limits<T>::quiet_NaN());
  });
}

// Shape [groups, kCodecGroup], padded with zeros.
at::Tensor in_groups(const at::Tensor& numbers_N) {
  const int64_t groups = codec_groups(numbers_N.numel());
  return at::constant_pad_nd(numbers_N, {0, groups * kCodecGroup - numbers_N.numel()})
      .view({groups, kCodecGroup});
}

}  // namespace

void encode_moments(Moment::Sign sign, const at::Tensor& x_N, Seed seed, int64_t place,
                    const at::Tensor& codes_N, const at::Tensor& exponents_G) {
  if (!x_N.is_cpu()) return aten::encode_moments(sign, x_N, seed, place, codes_N, exponents_G);
  AT_DISPATCH_FLOATING_TYPES(x_N.scalar_type(), "encode_moments", [&] {
    sign == Moment::Sign::kAny ? encode_all_moments<true, scalar_t>(x_N, seed, place, codes_N, exponents_G)
                               : encode_all_moments<false, scalar_t>(x_N, seed, place, codes_N, exponents_G);
  });
}

void decode_moments(Moment::Sign sign, const at::Tensor& codes_N, const at::Tensor& exponents_G,
                    const at::Tensor& x_N) {
  if (!x_N.is_cpu()) return aten::decode_moments(sign, codes_N, exponents_G, x_N);
  AT_DISPATCH_FLOATING_TYPES(x_N.scalar_type(), "decode_moments", [&] {
    sign == Moment::Sign::kAny ? decode_all_moments<true, scalar_t>(codes_N, exponents_G, x_N)
                               : decode_all_moments<false, scalar_t>(codes_N, exponents_G, x_N);
  });
}

namespace aten {
namespace {

template <bool kSigned>
void encode(const at::Tensor& x_N, Seed seed, int64_t place, const at::Tensor& codes_N,
            const at::Tensor& exponents_G) {
  using Coded = Codes<kSigned>;
  const at::Tensor x = in_groups(x_N.to(at::kFloat));
  const at::Tensor largest = at::amax(x.abs(), {1}).contiguous().view(at::kInt);
  at::Tensor over = largest.__rshift__(kFloatMantissa) + 1;
  over.masked_fill_(over > static_cast<int64_t>(kMostExponent), static_cast<int64_t>(kNoNumbers));
  exponents_G.copy_(over);
  const at::Tensor inverse = (254 - over.clamp_max(static_cast<int64_t>(kMostExponent)))
                                 .to(at::kInt)
                                 .__lshift__(kFloatMantissa)
                                 .view(at::kFloat)
                                 .unsqueeze(1);
  const at::Tensor magnitude = x.abs() * inverse;
  const at::Tensor small = magnitude < Coded::kLeast;
  at::Tensor steps = at::where(small, magnitude + Coded::kLeast, magnitude).view(at::kInt);
  steps -= static_cast<int64_t>(Coded::kLeastBits);
  if (seed) {
    steps += all_hashed(place, x.numel(), *seed, 32 - Coded::kCutBits, x.device()).view_as(steps);
  } else {
    steps += int64_t{1} << (Coded::kCutBits - 1);
  }
  at::Tensor codes = steps.__rshift__(Coded::kCutBits) + small.logical_not().to(at::kInt) * Coded::kSteps;
  codes.clamp_max_(Coded::kMost);
  codes = kSigned ? codes + (x < 0).to(at::kInt) * 128
                  : at::maximum(codes, largest.unsqueeze(1).ne(0).to(at::kInt));
  codes_N.copy_(codes.flatten().narrow(0, 0, x_N.numel()));
}

template <bool kSigned>
void decode(const at::Tensor& codes_N, const at::Tensor& exponents_G, const at::Tensor& x_N) {
  using Coded = Codes<kSigned>;
  const at::Tensor codes = in_groups(codes_N.to(at::kInt));
  const at::Tensor magnitude = kSigned ? codes.bitwise_and(127) : codes;
  const at::Tensor power = exponents_G.to(at::kInt).__lshift__(kFloatMantissa).view(at::kFloat).unsqueeze(1);
  const at::Tensor floats =
      ((magnitude - Coded::kSteps).__lshift__(Coded::kCutBits) + static_cast<int64_t>(Coded::kLeastBits))
          .to(at::kInt)
          .view(at::kFloat);
  at::Tensor x = at::where(magnitude < Coded::kSteps,
                           magnitude.to(at::kFloat) * (Coded::kLeast / Coded::kSteps), floats) *
                 power;
  if (kSigned) x = at::where(codes > 127, -x, x);
  x.masked_fill_(exponents_G.eq(static_cast<int64_t>(kNoNumbers)).unsqueeze(1),
                 std::numeric_limits<float>::quiet_NaN());
  x_N.copy_(x.flatten().narrow(0, 0, x_N.numel()));
}

}  // namespace

void encode_moments(Moment::Sign sign, const at::Tensor& x_N, Seed seed, int64_t place,
                    const at::Tensor& codes_N, const at::Tensor& exponents_G) {
  sign == Moment::Sign::kAny ? encode<true>(x_N, seed, place, codes_N, exponents_G)
                             : encode<false>(x_N, seed, place, codes_N, exponents_G);
}

void decode_moments(Moment::Sign sign, const at::Tensor& codes_N, const at::Tensor& exponents_G,
                    const at::Tensor& x_N) {
  sign == Moment::Sign::kAny ? decode<true>(codes_N, exponents_G, x_N)
                             : decode<false>(codes_N, exponents_G, x_N);
}

}  // namespace aten

Moment::Moment(int64_t numbers, base::MomentFormat format, Sign sign, const at::TensorOptions& wide)
    : numbers_(numbers), sign_(sign), wide_(wide) {
  if (format == base::MomentFormat::kWide) {
    numbers_or_codes_ = at::zeros({numbers}, wide);
    return;
  }
  numbers_or_codes_ = at::zeros({numbers}, wide.dtype(at::kByte));
  exponents_ = at::zeros({codec_groups(numbers)}, wide.dtype(at::kByte));
}

int64_t Moment::nbytes() const {
  if (numbers_ == 0) return 0;
  return static_cast<int64_t>(numbers_or_codes_.nbytes() + (coded() ? exponents_.nbytes() : 0));
}

at::Tensor Moment::read(base::Interval some) const {
  if (!coded()) return numbers_or_codes_.narrow(0, some.begin, some.size());
  SLUICE_ASSERT(some.begin % kCodecGroup == 0, "coded moments are read from a group on");
  at::Tensor numbers = at::empty({some.size()}, wide_);
  decode_moments(sign_, numbers_or_codes_.narrow(0, some.begin, some.size()),
                 exponents_.narrow(0, some.begin / kCodecGroup, codec_groups(some.size())), numbers);
  return numbers;
}

void Moment::write(int64_t first, const at::Tensor& numbers, Seed seed, int64_t place) {
  const int64_t count = numbers.numel();
  if (!coded()) {
    at::Tensor own = numbers_or_codes_.narrow(0, first, count);
    if (own.const_data_ptr() != numbers.const_data_ptr()) own.copy_(numbers);
    return;
  }
  SLUICE_ASSERT(first % kCodecGroup == 0 && (count % kCodecGroup == 0 || first + count == numbers_),
                "coded moments are written by whole groups");
  encode_moments(sign_, numbers.to(wide_).contiguous(), seed, place,
                 numbers_or_codes_.narrow(0, first, count),
                 exponents_.narrow(0, first / kCodecGroup, codec_groups(count)));
}

}  // namespace sluice::runtime
