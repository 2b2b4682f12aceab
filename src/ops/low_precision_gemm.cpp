// M, N: rows of the operands; K: the summed dimension; P: pairs of K.
#include "ops/low_precision_gemm.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "ops/cuda/gpu.h"
#include "ops/float8.h"
#include "ops/simd.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::ops {

using base::GemmFormat;

namespace {

constexpr float kMostCode = 127;
constexpr float kOffset = 128;
constexpr uint32_t kPlaceFactor = 0x9e3779b9U;
constexpr uint32_t kMixFactor = 0x85ebca6bU;

// A pseudo-random number in [0, 1): a hash of the number's bits and its place in the row.
[[gnu::always_inline]] inline float chance(float value, uint32_t place) {
  uint32_t mixed = (std::bit_cast<uint32_t>(value) ^ (place * kPlaceFactor)) * kMixFactor;
  mixed = (mixed ^ (mixed >> 15)) * kPlaceFactor;
  return static_cast<float>(static_cast<int32_t>(mixed >> 8)) * 0x1p-24F;
}

// Writes K codes to `codes` and returns the row's factor.
template <typename Code>
SLUICE_SIMD float code_row(const float* x, int64_t k, Code* codes) {
  float most = 0, nothing = 0;  // largest magnitude; 0, or NaN if a number is not finite
#pragma omp simd reduction(max : most) reduction(+ : nothing)
  for (int64_t i = 0; i < k; ++i) {
    const float magnitude = x[i] < 0 ? -x[i] : x[i];
    most = magnitude > most ? magnitude : most;
    nothing += x[i] * 0;
  }
  if (nothing != 0) {
    std::fill(codes, codes + k, Code{0});
    return NAN;
  }
  const float inverse = most > 0 ? kMostCode / most : 0;
#pragma omp simd
  for (int64_t i = 0; i < k; ++i) {
    // Truncation rounds down, because the offset makes the numbers positive.
    const float scaled = x[i] * inverse + chance(x[i], static_cast<uint32_t>(i)) + kOffset;
    const auto code = static_cast<int32_t>(scaled) - static_cast<int32_t>(kOffset);
    codes[i] = static_cast<Code>(code > 127 ? 127 : code);
  }
  return most / kMostCode;
}

#if defined(__x86_64__)

constexpr int64_t kPanel = 16;  // rows of the right operand, side by side
constexpr int kTile = 4;        // rows of the left operand at once, limited by registers for the sums

// The right operand's codes by panels of rows, each [P][kPanel][2]; rows beyond the last are zeros.
struct Panels {
  std::vector<int16_t> codes;
  std::vector<float> factors;
};

int64_t padded(int64_t k) { return k + k % 2; }

Panels panels_of(const at::Tensor& x_NK) {
  const int64_t n = x_NK.size(0), k = x_NK.size(1), wide = padded(k);
  const int64_t panels = (n + kPanel - 1) / kPanel;
  Panels result{.codes = std::vector<int16_t>(static_cast<size_t>(panels * kPanel * wide)),
                .factors = std::vector<float>(static_cast<size_t>(panels * kPanel))};
  const auto* const x = x_NK.const_data_ptr<float>();
  at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
    std::vector<int16_t> row(static_cast<size_t>(wide));
    for (int64_t j = begin * kPanel; j < std::min(n, end * kPanel); ++j) {
      result.factors[static_cast<size_t>(j)] = code_row(x + j * k, k, row.data());
      int16_t* const to = result.codes.data() + j / kPanel * kPanel * wide + j % kPanel * 2;
      for (int64_t p = 0; p < wide / 2; ++p)
        std::memcpy(to + p * kPanel * 2, row.data() + 2 * p, 2 * sizeof(int16_t));
    }
  });
  return result;
}

// Multiplies kRows rows of the left operand, `wide` codes each, by a panel; writes kPanel products per row.
template <int kRows>
__attribute__((target("avx2"))) inline void multiply_tile(const int16_t* left, const float* left_factors,
                                                          int64_t wide, const int16_t* panel,
                                                          const float* panel_factors, float* products) {
  // Unrolled, so that all sums stay in registers.
  __m256i sum[kRows][2];
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) sum[row][0] = sum[row][1] = _mm256_setzero_si256();
  for (int64_t p = 0; p < wide / 2; ++p) {
    const auto* const pairs = reinterpret_cast<const __m256i*>(panel + p * kPanel * 2);
    const __m256i first = _mm256_loadu_si256(pairs), second = _mm256_loadu_si256(pairs + 1);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      int32_t pair = 0;
      std::memcpy(&pair, left + row * wide + 2 * p, sizeof pair);
      const __m256i of_left = _mm256_set1_epi32(pair);
      sum[row][0] = _mm256_add_epi32(sum[row][0], _mm256_madd_epi16(of_left, first));
      sum[row][1] = _mm256_add_epi32(sum[row][1], _mm256_madd_epi16(of_left, second));
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256 factor =
          _mm256_mul_ps(_mm256_set1_ps(left_factors[row]), _mm256_loadu_ps(panel_factors + 8 * half));
      _mm256_storeu_ps(products + row * kPanel + 8 * half,
                       _mm256_mul_ps(_mm256_cvtepi32_ps(sum[row][half]), factor));
    }
  }
}

// out = (kAdds: +=) the product. REQUIRES: contiguous floats; K · 127² < 2³¹.
template <bool kAdds>
void multiply_codes(const at::Tensor& left_MK, const at::Tensor& right_NK, float* out, int64_t row_stride) {
  const int64_t m = left_MK.size(0), n = right_NK.size(0), k = left_MK.size(1), wide = padded(k);
  const Panels panels = panels_of(right_NK);
  const auto* const left = left_MK.const_data_ptr<float>();
  // Rows of a block stay in the second-level cache while all panels pass.
  constexpr int64_t kBlock = 24 * kTile;
  at::parallel_for(0, (m + kBlock - 1) / kBlock, 1, [&](int64_t begin, int64_t end) {
    std::vector<int16_t> codes(static_cast<size_t>(kBlock * wide));
    float factors[kBlock] = {};
    float products[kTile * kPanel];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock, rows = std::min(kBlock, m - first);
      std::ranges::fill(codes, int16_t{0});
      for (int64_t r = 0; r < rows; ++r)
        factors[r] = code_row(left + (first + r) * k, k, codes.data() + r * wide);
      for (int64_t panel = 0; panel * kPanel < n; ++panel) {
        const int64_t columns = std::min(kPanel, n - panel * kPanel);
        for (int64_t tile = 0; tile < rows; tile += kTile) {
          multiply_tile<kTile>(codes.data() + tile * wide, factors + tile, wide,
                               panels.codes.data() + panel * kPanel * wide,
                               panels.factors.data() + panel * kPanel, products);
          for (int64_t r = tile; r < std::min(rows, tile + kTile); ++r) {
            float* const to = out + (first + r) * row_stride + panel * kPanel;
            const float* const from = products + (r - tile) * kPanel;
#pragma omp simd
            for (int64_t c = 0; c < columns; ++c) to[c] = kAdds ? to[c] + from[c] : from[c];
          }
        }
      }
    }
  });
}

#endif

at::Tensor floats(const at::Tensor& x) { return x.to(at::kFloat).contiguous(); }

// The hash as ATen's 32-bit integers compute it.
at::Tensor chances(const at::Tensor& x_RK) {
  const auto shifted = [](const at::Tensor& x, int64_t bits) {  // logical shift
    return x.bitwise_right_shift(bits).bitwise_and_((int64_t{1} << (32 - bits)) - 1);
  };
  const at::Tensor place_K = at::arange(x_RK.size(1), x_RK.options().dtype(at::kInt));
  const auto factor = [](uint32_t value) { return static_cast<int32_t>(value); };
  at::Tensor mixed = x_RK.view(at::kInt).bitwise_xor(place_K * factor(kPlaceFactor)) * factor(kMixFactor);
  mixed = mixed.bitwise_xor(shifted(mixed, 15)) * factor(kPlaceFactor);
  return shifted(mixed, 8).to(at::kFloat) * 0x1p-24;
}

// Factors of rows, in float: the largest magnitude over the largest code, and the inverse by which
// numbers are multiplied. NaN if a row is not finite.
struct RowFactors {
  at::Tensor factor_R1, inverse_R1;
};
RowFactors row_factors(const at::Tensor& x_RK) {
  const at::Tensor most_R1 = x_RK.abs().amax(1, /*keepdim=*/true);
  const at::Tensor finite_R1 = most_R1.isfinite();
  return {(most_R1 / double{kMostCode}).where(finite_R1, NAN),
          at::where(most_R1.gt(0).logical_and(finite_R1), double{kMostCode} / most_R1, 0.0)};
}

at::Tensor int8_product(const at::Tensor& left_MK, const at::Tensor& right_NK) {
  const RowCodes left = row_codes(left_MK), right = row_codes(right_NK);
  const int64_t m = left_MK.size(0), n = right_NK.size(0), k = left_MK.size(1);
  const bool fits_units = left_MK.is_cuda() && m > 16 && n % 8 == 0 && k % 8 == 0;
  const at::Tensor sums_MN =
      fits_units ? at::_int_mm(left.code_RK.to(at::kChar), right.code_RK.to(at::kChar).t()).to(at::kFloat)
                 : at::mm(left.code_RK, right.code_RK.t());
  return sums_MN * left.factor_R.unsqueeze(1) * right.factor_R;
}

at::Tensor bfloat16_product(const at::Tensor& left_MK, const at::Tensor& right_NK) {
  const at::Tensor left = left_MK.to(at::kBFloat16), right = right_NK.to(at::kBFloat16);
  if (left.is_cuda()) return at::mm(left, right.t(), at::kFloat);
  return at::mm(left.to(at::kFloat), right.to(at::kFloat).t());
}

// Whether this processor has instructions that make 8-bit products faster than float products.
bool has_kernel() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
#else
  return false;
#endif
}

bool runs_kernel(GemmFormat format, const at::Tensor& left_MK) {
  constexpr int64_t kMostSummed = (int64_t{1} << 31) / (127 * 127);
  return format == GemmFormat::kInt8 && left_MK.device().is_cpu() && has_kernel() &&
         left_MK.size(1) < kMostSummed;
}

// Rounds the operands and multiplies in float. 8-bit floats are not for this: ops/float8.h.
at::Tensor wide_product(GemmFormat format, const at::Tensor& left_MK, const at::Tensor& right_NK) {
#if defined(__x86_64__)
  if (runs_kernel(format, left_MK)) {
    const at::Tensor product_MN = at::empty({left_MK.size(0), right_NK.size(0)}, at::dtype(at::kFloat));
    multiply_codes<false>(floats(left_MK), floats(right_NK), product_MN.mutable_data_ptr<float>(),
                          product_MN.size(1));
    return product_MN;
  }
#endif
  switch (format) {
    case GemmFormat::kBFloat16: return bfloat16_product(left_MK, right_NK);
    case GemmFormat::kInt8: return int8_product(floats(left_MK), floats(right_NK));
    case GemmFormat::kFloat8:
    case GemmFormat::kAsComputed: break;
  }
  SLUICE_ASSERT(false, "no low-precision product for a format that computes as the run does");
}

}  // namespace

bool multiplies(GemmFormat format, c10::Device device) {
  if (format != GemmFormat::kFloat8 || !device.is_cuda()) return true;
#ifdef SLUICE_CUDA
  return gpu::supports_float8(device);
#else
  return false;
#endif
}

at::Tensor low_precision_gemm(GemmFormat format, const at::Tensor& left_MK, const at::Tensor& right_NK) {
  if (format == GemmFormat::kFloat8)
    return float8_product(float8_rows(left_MK), float8_rows(right_NK), left_MK.scalar_type());
  return wide_product(format, left_MK, right_NK).to(left_MK.scalar_type());
}

void add_low_precision_gemm(GemmFormat format, const at::Tensor& sum_MN, const at::Tensor& left_MK,
                            const at::Tensor& right_NK) {
  if (format == GemmFormat::kFloat8)
    return add_float8_product(sum_MN, float8_rows(left_MK), float8_rows(right_NK));
#if defined(__x86_64__)
  if (runs_kernel(format, left_MK) && sum_MN.scalar_type() == at::kFloat && sum_MN.stride(1) == 1) {
    multiply_codes<true>(floats(left_MK), floats(right_NK), sum_MN.mutable_data_ptr<float>(),
                         sum_MN.stride(0));
    return;
  }
#endif
  at::Tensor(sum_MN).add_(wide_product(format, left_MK, right_NK));
}

RowCodes row_codes(const at::Tensor& x_RK) {
  const at::Tensor wide_RK = floats(x_RK);
  const auto [factor_R1, inverse_R1] = row_factors(wide_RK);
  const at::Tensor code_RK = (wide_RK * inverse_R1 + chances(wide_RK) + kOffset)
                                 .floor_()
                                 .sub_(kOffset)
                                 .clamp_max_(kMostCode)
                                 .nan_to_num_(0, 0, 0);
  return {code_RK, factor_R1.squeeze(1)};
}

}  // namespace sluice::ops
