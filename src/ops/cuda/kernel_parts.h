// Common parts of the kernels: 16-byte accesses, sums over a block, launches. Only *_kernels.cu files include
// this.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "ops/cuda/grid.h"
#include "ops/cuda/kernels.h"
#ifdef SLUICE_CUDA_ON_HOST
#define SLUICE_UNROLL
#define SLUICE_UNROLL_BY(times)
#else
#include <cuda_bf16.h>
#define SLUICE_UNROLL _Pragma("unroll")
#define SLUICE_PRAGMA(text) _Pragma(#text)
#define SLUICE_UNROLL_BY(times) SLUICE_PRAGMA(unroll times)
#endif

namespace sluice::ops::kernels {

constexpr int kThreads = 256;  // per block
constexpr int kWarps = kThreads / 32;

// bfloat16 as memory holds it: the upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(BFloat16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}

template <typename S>
__device__ S narrow(float value) {
  if constexpr (sizeof(S) == sizeof(float)) {
    return value;
  } else {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};  // to nearest, ties to even
  }
}

// Elements of S that one 16-byte access moves.
template <typename S>
constexpr int kWidest = 16 / static_cast<int>(sizeof(S));

template <int kWide>
struct Floats {
  float at[kWide];
};

// kWide neighbouring elements. REQUIRES: the address is a multiple of one access: 16 bytes, or one element if
// kWide elements take fewer bytes.
template <int kWide, typename S>
__device__ Floats<kWide> load(const S* from) {
  Floats<kWide> result;
  if constexpr (kWide % kWidest<S> == 0) {
    SLUICE_UNROLL
    for (int access = 0; access < kWide; access += kWidest<S>) {
      const uint4 words = *reinterpret_cast<const uint4*>(from + access);
      S values[kWidest<S>];
      memcpy(values, &words, sizeof words);
      SLUICE_UNROLL
      for (int i = 0; i < kWidest<S>; ++i) result.at[access + i] = widen(values[i]);
    }
  } else {
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) result.at[i] = widen(from[i]);
  }
  return result;
}

template <int kWide, typename S>
__device__ void store(S* to, const Floats<kWide>& floats) {
  if constexpr (kWide % kWidest<S> == 0) {
    SLUICE_UNROLL
    for (int access = 0; access < kWide; access += kWidest<S>) {
      S values[kWidest<S>];
      SLUICE_UNROLL
      for (int i = 0; i < kWidest<S>; ++i) values[i] = narrow<S>(floats.at[access + i]);
      uint4 words;
      memcpy(&words, values, sizeof words);
      *reinterpret_cast<uint4*>(to + access) = words;
    }
  } else {
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) to[i] = narrow<S>(floats.at[i]);
  }
}

// The sum over all threads of the block, returned to each of them; fixed order. All threads must call it.
__device__ inline float block_sum(float value) {
  __shared__ float of_warp[kWarps];
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffU, value, distance);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += of_warp[warp];
  __syncthreads();  // before the next call writes
  return sum;
}

// This thread's number among all threads of the launch.
__device__ inline int64_t global_thread() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

#ifndef SLUICE_CUDA_ON_HOST
template <typename... Parameters>
Status launch(void (*kernel)(Parameters...), Grid grid, Stream stream, Parameters... arguments) {
  if (grid.blocks == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), 0, stream>>>(
      arguments...);
  return cudaGetLastError();
}
#endif
template <typename... Parameters>
Status launch(void (*kernel)(Parameters...), int64_t blocks, Stream stream, Parameters... arguments) {
  return launch(kernel, Grid{blocks, kThreads}, stream, Parameters(arguments)...);
}

inline int64_t blocks_for(int64_t threads) { return (threads + kThreads - 1) / kThreads; }

// Whether rows of `width` elements of S can be moved 16 bytes at a time: all rows begin at multiples of 16.
template <typename S>
bool can_be_wide(int64_t width, std::initializer_list<const void*> addresses) {
  uint64_t all = static_cast<uint64_t>(width) * sizeof(S);
  for (const void* address : addresses) all |= reinterpret_cast<uint64_t>(address);
  return all % 16 == 0;
}

// Calls visit.template operator()<S>() with the element's type.
template <typename Visit>
Status visit_element(Element element, Visit visit) {
  return element == Element::kBFloat16 ? visit.template operator()<BFloat16>()
                                       : visit.template operator()<float>();
}

}  // namespace sluice::ops::kernels
