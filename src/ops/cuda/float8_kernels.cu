// The kernels that code operands as 8-bit floats (ops/float8.h), bound by memory: an operand is read twice,
// the second time mostly from a cache, and written as bytes. By row, a block codes one row. By column, a
// block codes kTileColumns columns: codes of kTileRows rows at a time pass through shared memory, so that
// both sides move 16 bytes an access.
#include "ops/cuda/kernel_parts.h"
#include "ops/float8_format.h"
#ifndef SLUICE_CUDA_ON_HOST
#include <cuda_fp8.h>
#endif

namespace sluice::ops::kernels {
namespace {

constexpr int kCodedAtOnce = 8;
constexpr int kTileColumns = 32;
constexpr int kTileRows = 256;
constexpr int kCodeWords =
    kTileRows / 4 + 1;  // of a tile's column; one more than codes, against bank conflicts
constexpr uint32_t kInfinityBits = 0x7f800000U;

// Magnitudes as integers of the same order; numbers that are not finite come last.
__device__ uint32_t magnitude(float value) { return __float_as_uint(value) & 0x7fffffffU; }
__device__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Returned to all threads of the block, which must all call it.
__device__ uint32_t block_most(uint32_t value) {
  __shared__ uint32_t of_warp[kWarps];
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(0xffffffffU, __uint_as_float(value), distance);
    value = larger(value, __float_as_uint(other));
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  uint32_t most = 0;
  for (int warp = 0; warp < kWarps; ++warp) most = larger(most, of_warp[warp]);
  return most;
}

struct Scale {
  float factor;
  float inverse;  // 0: the row is not finite
};
__device__ Scale scale_of(uint32_t most) {
  if (most >= kInfinityBits) return {__uint_as_float(0x7fc00000U), 0.0F};
  const float used = fmaxf(__uint_as_float(most), kLeastRowMost);
  return {used / kMostFloat8, kMostFloat8 / used};
}

__device__ uint8_t code_of(float value, float inverse) {
  return __nv_cvt_float_to_fp8(inverse > 0 ? value * inverse : 0.0F, __NV_SATFINITE, __NV_E4M3);
}

template <typename S, int kWide>
__global__ void __launch_bounds__(kThreads) code_rows(Float8Coding coding) {
  const auto row = static_cast<int64_t>(blockIdx.x), begin = static_cast<int64_t>(threadIdx.x) * kWide;
  const S* x = static_cast<const S*>(coding.x) + row * coding.row_stride;
  uint32_t most = 0;
  SLUICE_UNROLL_BY(4)
  for (int64_t i = begin; i < coding.width; i += kThreads * kWide) {
    const Floats<kWide> values = load<kWide>(x + i);
    SLUICE_UNROLL
    for (int j = 0; j < kWide; ++j) most = larger(most, magnitude(values.at[j]));
  }
  const Scale scale = scale_of(block_most(most));
  if (threadIdx.x == 0) coding.factors[row] = scale.factor;
  uint8_t* codes = coding.codes + row * coding.code_stride;
  for (int64_t i = begin; i < coding.code_stride; i += kThreads * kWide) {
    Floats<kWide> values{};
    if (i < coding.width) values = load<kWide>(x + i);
    alignas(8) uint8_t own[kWide];
    SLUICE_UNROLL
    for (int j = 0; j < kWide; ++j) own[j] = code_of(values.at[j], scale.inverse);
    if constexpr (kWide == kCodedAtOnce) {
      uint64_t word;
      memcpy(&word, own, sizeof word);
      *reinterpret_cast<uint64_t*>(codes + i) = word;
    } else {
      codes[i] = own[0];
    }
  }
}

// The block's columns: their largest magnitudes, then their factors and inverses.
template <typename S, int kWide>
__device__ void find_inverses(const Float8Coding& coding, int64_t first, float* inverses) {
  constexpr int kLanes = kTileColumns / kWide, kRowsAtOnce = kThreads / kLanes;
  __shared__ uint32_t mosts[kRowsAtOnce][kTileColumns];
  const int lane = static_cast<int>(threadIdx.x) % kLanes, begin = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t column = first + lane * kWide;
  uint32_t own[kWide] = {};
  if (column < coding.width) {
    const S* x = static_cast<const S*>(coding.x) + column;
    SLUICE_UNROLL_BY(4)
    for (int64_t row = begin; row < coding.rows; row += kRowsAtOnce) {
      const Floats<kWide> values = load<kWide>(x + row * coding.row_stride);
      SLUICE_UNROLL
      for (int i = 0; i < kWide; ++i) own[i] = larger(own[i], magnitude(values.at[i]));
    }
  }
  SLUICE_UNROLL
  for (int i = 0; i < kWide; ++i) mosts[begin][lane * kWide + i] = own[i];
  __syncthreads();
  if (threadIdx.x < kTileColumns) {
    uint32_t most = 0;
    for (int i = 0; i < kRowsAtOnce; ++i) most = larger(most, mosts[i][threadIdx.x]);
    const Scale scale = scale_of(most);
    inverses[threadIdx.x] = scale.inverse;
    if (first + threadIdx.x < coding.width) coding.factors[first + threadIdx.x] = scale.factor;
  }
  __syncthreads();
}

template <typename S, int kWide>
__global__ void __launch_bounds__(kThreads, 4) code_columns(Float8Coding coding) {
  constexpr int kLanes = kTileColumns / kWide, kRowsAtOnce = kThreads / kLanes, kPieces = kTileRows / 16;
  __shared__ uint32_t tile[kTileColumns * kCodeWords];
  __shared__ float inverses[kTileColumns];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileColumns;
  find_inverses<S, kWide>(coding, first, inverses);
  const int lane = static_cast<int>(threadIdx.x) % kLanes, begin = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t column = first + lane * kWide;
  const S* x = static_cast<const S*>(coding.x) + column;
  auto* const bytes = reinterpret_cast<uint8_t*>(tile);
  for (int64_t from = 0; from < coding.code_stride; from += kTileRows) {
    SLUICE_UNROLL_BY(2)
    for (int row = begin; row < kTileRows; row += kRowsAtOnce) {
      Floats<kWide> values{};
      if (column < coding.width && from + row < coding.rows)
        values = load<kWide>(x + (from + row) * coding.row_stride);
      SLUICE_UNROLL
      for (int i = 0; i < kWide; ++i)
        bytes[(lane * kWide + i) * kCodeWords * 4 + row] = code_of(values.at[i], inverses[lane * kWide + i]);
    }
    __syncthreads();
    for (int piece = static_cast<int>(threadIdx.x); piece < kTileColumns * kPieces; piece += kThreads) {
      const int own = piece / kPieces, at = piece % kPieces * 16;
      if (first + own >= coding.width || from + at >= coding.code_stride) continue;
      const uint32_t* words = tile + own * kCodeWords + at / 4;
      const uint4 sixteen{words[0], words[1], words[2], words[3]};
      *reinterpret_cast<uint4*>(coding.codes + (first + own) * coding.code_stride + from + at) = sixteen;
    }
    __syncthreads();
  }
}

template <typename S>
bool codes_eight(const Float8Coding& coding) {
  return coding.width % kCodedAtOnce == 0 && can_be_wide<S>(coding.row_stride, {coding.x});
}

}  // namespace

Status launch_float8_rows(Element element, const Float8Coding& coding, Stream stream) {
  return visit_element(element, [&]<typename S>() {
    return codes_eight<S>(coding) ? launch(code_rows<S, kCodedAtOnce>, coding.rows, stream, coding)
                                  : launch(code_rows<S, 1>, coding.rows, stream, coding);
  });
}

Status launch_float8_columns(Element element, const Float8Coding& coding, Stream stream) {
  const int64_t blocks = (coding.width + kTileColumns - 1) / kTileColumns;
  return visit_element(element, [&]<typename S>() {
    return codes_eight<S>(coding) ? launch(code_columns<S, kCodedAtOnce>, blocks, stream, coding)
                                  : launch(code_columns<S, 1>, blocks, stream, coding);
  });
}

}  // namespace sluice::ops::kernels
