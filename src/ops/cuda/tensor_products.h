// Products of float matrices by tensor cores, almost as precise as FP32. Only *_kernels.cu files include
// this.
//
// Tensor cores round factors to TF32, 11 significant bits. Two such numbers hold a float but for 2^-22 of it,
// x = high + low, so a product is high·high + high·low + low·high; low·low is as small as the rest. The units
// cut sums off toward zero, thus each sum of kProductDepth terms begins at zero there, and an FP32 addition
// adds it to the whole (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
// surpassing the FP32 theoretical peak performance", 2022). Order of sums: fixed.
#pragma once

#include <type_traits>

#include "ops/cuda/kernel_parts.h"
#ifdef SLUICE_CUDA_ON_HOST
#include "ops/cuda/test_tensor_cores.h"
#else
#include <mma.h>
#endif

namespace sluice::ops::kernels {

constexpr int kTile = 16;         // rows and columns of a tile of a product
constexpr int kProductDepth = 8;  // terms of the sums that the units compute at once

// A tile [kTile, kTile], which the threads of a warp hold together.
using TileSum = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kTile, kTile, kProductDepth, float>;
// Orders of the left factor's elements in memory.
using ByRow = nvcuda::wmma::row_major;
using ByColumn = nvcuda::wmma::col_major;

__device__ inline void clear(TileSum& tile) { nvcuda::wmma::fill_fragment(tile, 0.0F); }
// REQUIRES, here and below: addresses are multiples of 32 bytes, strides of 4 floats; all threads of the warp
// call with the same arguments.
__device__ inline void store(float* to, int stride, const TileSum& tile) {
  nvcuda::wmma::store_matrix_sync(to, tile, static_cast<unsigned>(stride), nvcuda::wmma::mem_row_major);
}

// Tiles of factors in shared memory. CUDA's own function would compute addresses in 64 bits.
#ifdef SLUICE_CUDA_ON_HOST
template <typename Factor>
void load(Factor& tile, const float* from, int stride) {
  nvcuda::wmma::load_matrix_sync(tile, from, static_cast<unsigned>(stride));
}
#else
#define SLUICE_LOAD_TILE(factor)                                                         \
  asm volatile("wmma.load." factor ".m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;"   \
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])                          \
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))), "r"(stride) \
               : "memory")
template <typename Use, typename Order>
__device__ inline void load(
    nvcuda::wmma::fragment<Use, kTile, kTile, kProductDepth, nvcuda::wmma::precision::tf32, Order>& tile,
    const float* from, int stride) {
  static_assert(tile.num_elements == 4);
  unsigned x[4];
  if constexpr (std::is_same_v<Use, nvcuda::wmma::matrix_b>) {
    SLUICE_LOAD_TILE("b.sync.aligned.row");
  } else if constexpr (std::is_same_v<Order, ByRow>) {
    SLUICE_LOAD_TILE("a.sync.aligned.row");
  } else {
    SLUICE_LOAD_TILE("a.sync.aligned.col");
  }
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i) tile.x[i] = __uint_as_float(x[i]);
}
#undef SLUICE_LOAD_TILE
#endif

// Leaves the high part of each element in `high`, and the rest in `low`.
template <typename Factor>
__device__ inline void split(Factor& high, Factor& low) {
  SLUICE_UNROLL
  for (int i = 0; i < Factor::num_elements; ++i) {
    const float x = high.x[i];
    high.x[i] = nvcuda::wmma::__float_to_tf32(x);
    low.x[i] = nvcuda::wmma::__float_to_tf32(x - high.x[i]);
  }
}

// sum += a·b, for a [kTile, depth] in memory by row or by column and b [depth, kTile] by row. REQUIRES:
// kProductDepth divides depth.
template <typename Order>
__device__ inline void add_product(const float* a, int a_stride, const float* b, int b_stride, int depth,
                                   TileSum& sum) {
  namespace wmma = nvcuda::wmma;
  SLUICE_UNROLL_BY(1)
  for (int k = 0; k < depth; k += kProductDepth) {
    wmma::fragment<wmma::matrix_a, kTile, kTile, kProductDepth, wmma::precision::tf32, Order> a_high, a_low;
    wmma::fragment<wmma::matrix_b, kTile, kTile, kProductDepth, wmma::precision::tf32, wmma::row_major>
        b_high, b_low;
    const int a_at = std::is_same_v<Order, ByRow> ? k : k * a_stride;
    load(a_high, a + a_at, a_stride);
    load(b_high, b + k * b_stride, b_stride);
    split(a_high, a_low);
    split(b_high, b_low);
    TileSum terms;
    clear(terms);
    wmma::mma_sync(terms, a_low, b_high, terms);
    wmma::mma_sync(terms, a_high, b_low, terms);
    wmma::mma_sync(terms, a_high, b_high, terms);
    SLUICE_UNROLL
    for (int i = 0; i < TileSum::num_elements; ++i) sum.x[i] += terms.x[i];
  }
}

// The tile in memory += factor·tile.
__device__ inline void add_to(float* to, int stride, float factor, const TileSum& tile) {
  TileSum all;
  nvcuda::wmma::load_matrix_sync(all, to, static_cast<unsigned>(stride), nvcuda::wmma::mem_row_major);
  SLUICE_UNROLL
  for (int i = 0; i < TileSum::num_elements; ++i) all.x[i] += factor * tile.x[i];
  store(to, stride, all);
}

}  // namespace sluice::ops::kernels
