// The part of CUDA's matrix operations of a warp (nvcuda::wmma) that kernels use, for the host
// (test_cuda_on_host.h). The first thread of a warp holds all elements and computes; other threads' elements
// mean nothing. Factors that were not rounded to TF32 throw: a GPU would leave their result undefined. Sums
// are cut off toward zero, as tensor cores do.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "ops/cuda/test_cuda_on_host.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major };

template <typename Use, int kRows, int kColumns, int kDepth, typename Element, typename Order = void>
struct fragment;
// Elements in the order of rows, or of columns if Order says so.
template <typename Order>
struct fragment<matrix_a, 16, 16, 8, precision::tf32, Order> {
  static constexpr int num_elements = 16 * 8;
  float x[num_elements] = {};
};
template <>
struct fragment<matrix_b, 16, 16, 8, precision::tf32, row_major> {
  static constexpr int num_elements = 8 * 16;
  float x[num_elements] = {};
};
template <>
struct fragment<accumulator, 16, 16, 8, float> {
  static constexpr int num_elements = 16 * 16;
  float x[num_elements] = {};
};
template <typename Order>
using Left = fragment<matrix_a, 16, 16, 8, precision::tf32, Order>;
using Right = fragment<matrix_b, 16, 16, 8, precision::tf32, row_major>;
using Sum = fragment<accumulator, 16, 16, 8, float>;

inline bool holds_elements() { return threadIdx.x % 32 == 0; }

// To nearest, ties away from zero.
inline float __float_to_tf32(float value) {
  if (!std::isfinite(value)) return value;
  return __uint_as_float((__float_as_uint(value) + 0x1000U) & ~0x1fffU);
}

// Lines of kWide floats that lie `stride` apart.
template <int kWide, int kElements>
void load_lines(float (&x)[kElements], const float* from, unsigned stride) {
  if (!holds_elements()) return;
  if (reinterpret_cast<uintptr_t>(from) % 32 != 0 || stride % 4 != 0)
    throw std::logic_error("a tile in memory is not aligned");
  for (unsigned i = 0; i < kElements; ++i) x[i] = from[i / kWide * stride + i % kWide];
}
inline void load_matrix_sync(Left<row_major>& a, const float* from, unsigned stride) {
  load_lines<8>(a.x, from, stride);
}
inline void load_matrix_sync(Left<col_major>& a, const float* from, unsigned stride) {
  load_lines<16>(a.x, from, stride);
}
inline void load_matrix_sync(Right& b, const float* from, unsigned stride) {
  load_lines<16>(b.x, from, stride);
}
inline void load_matrix_sync(Sum& sum, const float* from, unsigned stride, layout_t /*order*/) {
  load_lines<16>(sum.x, from, stride);
}
inline void store_matrix_sync(float* to, const Sum& sum, unsigned stride, layout_t /*order*/) {
  if (!holds_elements()) return;
  if (reinterpret_cast<uintptr_t>(to) % 32 != 0 || stride % 4 != 0)
    throw std::logic_error("a tile in memory is not aligned");
  for (unsigned i = 0; i < Sum::num_elements; ++i) to[i / 16 * stride + i % 16] = sum.x[i];
}
inline void fill_fragment(Sum& sum, float value) {
  if (!holds_elements()) return;
  for (float& x : sum.x) x = value;
}

template <int kElements>
void expect_tf32(const float (&x)[kElements]) {
  for (const float value : x) {
    if (std::isfinite(value) && (__float_as_uint(value) & 0x1fffU) != 0)
      throw std::logic_error("a factor is not rounded to TF32");
  }
}
inline float cut_off(double value) {
  const auto nearest = static_cast<float>(value);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? std::nextafter(nearest, 0.0F) : nearest;
}

template <typename Order>
void mma_sync(Sum& result, const Left<Order>& a, const Right& b, const Sum& sum) {
  if (!holds_elements()) return;
  constexpr bool kByRow = std::is_same_v<Order, row_major>;
  expect_tf32(a.x);
  expect_tf32(b.x);
  for (int i = 0; i < 16; ++i) {
    double all[16];  // products are exact
    for (int j = 0; j < 16; ++j) all[j] = sum.x[i * 16 + j];
    for (int k = 0; k < 8; ++k) {
      const double factor = a.x[kByRow ? i * 8 + k : k * 16 + i];
      for (int j = 0; j < 16; ++j) all[j] += factor * b.x[k * 16 + j];
    }
    for (int j = 0; j < 16; ++j) result.x[i * 16 + j] = cut_off(all[j]);
  }
}

}  // namespace nvcuda::wmma
