// Common parts of this module's fused CPU kernels: vectorised functions, dispatch, and the choice between a
// kernel and ATen's operators. Internal to src/ops.
//
// Kernels are plain loops over rows. `#pragma omp simd` vectorises them, reductions included, without
// giving up NaN or infinities elsewhere; SLUICE_SIMD compiles each kernel for AVX2 and for the base
// architecture, and the loader picks one by what the processor has. SLUICE_SIMD_WIDE adds AVX-512: for
// kernels that compute an exponential of each element, which are two to five times as fast. Sums over a
// head's 64 dimensions are slower there.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SLUICE_SIMD __attribute__((target_clones("arch=x86-64-v3", "default")))
#define SLUICE_SIMD_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SLUICE_SIMD
#define SLUICE_SIMD_WIDE
#endif

// Runs the lambda with `scalar_t` bound to the tensor's type: float, double or bfloat16.
#define SLUICE_DISPATCH(tensor, name, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND(at::ScalarType::BFloat16, (tensor).scalar_type(), name, __VA_ARGS__)

namespace sluice::ops {

// Whether a fused kernel may read the tensor as a dense row-major array.
inline bool is_dense_cpu(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous();
}

// The type that sums, softmax and saved statistics use: double for double, else float.
inline at::ScalarType accumulator_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// `value` in the storage type S. bfloat16 rounds to nearest even by bit arithmetic, because c10's conversion
// branches on NaN, which keeps loops from vectorising.
template <typename S, typename A>
[[gnu::always_inline]] inline S narrow(A value) {
  if constexpr (std::is_same_v<S, at::BFloat16>) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return S(static_cast<uint16_t>(is_nan ? 0x7fc0U : rounded), S::from_bits());
  } else {
    return static_cast<S>(value);
  }
}

// Sum over k of r^k / k! from term kTerm, divided by that term.
template <int kDegree, int kTerm = 1, typename T>
[[gnu::always_inline]] inline T exponential_series(T r) {
  if constexpr (kTerm > kDegree) {
    return T(1);
  } else {
    constexpr T factor = T(1) / T(kTerm);
    return T(1) + r * factor * exponential_series<kDegree, kTerm + 1>(r);
  }
}

// e^x within an ulp, for float and double. Inputs beyond ±87 (±708) are clamped, NaN stays NaN.
//
// With n an integer and |r| <= ln(2)/2, x = n·ln 2 + r, so e^x = 2^n · e^r. Adding 1.5·2^m (m: mantissa bits)
// rounds x/ln 2 to an integer and leaves n in the low mantissa bits; a shift moves it into the exponent.
// Subtracting ln 2 takes two parts, of which the first has so few bits that n times it is exact. The series'
// remainder is below half an ulp at the degrees used.
template <typename T>
[[gnu::always_inline]] inline T vector_exp(T x) {
  constexpr bool kSingle = sizeof(T) == 4;
  using Bits = std::conditional_t<kSingle, uint32_t, uint64_t>;
  constexpr int kMantissaBits = kSingle ? 23 : 52;
  constexpr T kLimit = kSingle ? T(87) : T(708);
  constexpr T kRounder = T(3) * T(Bits{1} << (kMantissaBits - 1));
  constexpr T kInverseLn2 = T(1.44269504088896340736);
  constexpr T kLn2High = kSingle ? T(0.693359375) : T(0x1.62e42fee00000p-1);
  constexpr T kLn2Low = kSingle ? T(-2.12194440054690583e-4) : T(0x1.a39ef35793c76p-33);
  x = x < -kLimit ? -kLimit : x;
  x = x > kLimit ? kLimit : x;
  const T shifted = x * kInverseLn2 + kRounder;
  const T n = shifted - kRounder;
  const T r = (x - n * kLn2High) - n * kLn2Low;
  const T power = exponential_series < kSingle ? 7 : 13 > (r);
  return std::bit_cast<T>(
      static_cast<Bits>(std::bit_cast<Bits>(power) + (std::bit_cast<Bits>(shifted) << kMantissaBits)));
}

// 1 / (1 + e^-x).
template <typename T>
[[gnu::always_inline]] inline T vector_sigmoid(T x) {
  return T(1) / (T(1) + vector_exp(-x));
}

// tanh within a few ulps: (1 − e^-2|x|) / (1 + e^-2|x|), or the series up to x^11 where that would cancel.
template <typename T>
[[gnu::always_inline]] inline T vector_tanh(T x) {
  constexpr T kSmall = sizeof(T) == 4 ? T(0.25) : T(0.05);
  const T magnitude = x < T(0) ? -x : x;
  const T e = vector_exp(T(-2) * magnitude);
  const T large = (T(1) - e) / (T(1) + e);
  const T s = x * x;
  const T series =
      x * (T(1) +
           s * (T(-1.0 / 3) +
                s * (T(2.0 / 15) + s * (T(-17.0 / 315) + s * (T(62.0 / 2835) + s * T(-1382.0 / 155925))))));
  return magnitude < kSmall ? series : x < T(0) ? -large : large;
}

}  // namespace sluice::ops
