#include "ops/cuda/kernel_parts.h"
#include "runtime/wire_kernels.h"

namespace sluice::runtime {
namespace {

using ops::kernels::kThreads;
using ops::kernels::Status;
using ops::kernels::Stream;

constexpr int kGroup = 128;
constexpr int kOfLane = kGroup / 32;  // neighbouring numbers of one thread
constexpr uint32_t kLanes = 0xffffffffU;

// A finaliser of MurmurHash3 (Appleby, 2011).
__device__ inline uint32_t hashed(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x85ebca6bU;
  bits = (bits ^ (bits >> 13)) * 0xc2b2ae35U;
  return bits ^ (bits >> 16);
}

__device__ inline float added(const CodeJob& job, int64_t element) {
  if (!job.by_chance) return 0.5F;
  const uint32_t salted = (static_cast<uint32_t>(element) * 0x9e3779b9U + static_cast<uint32_t>(job.seed)) ^
                          static_cast<uint32_t>(job.seed >> 32);
  return static_cast<float>(hashed(salted) >> 8) * (1.0F / (1 << 24));
}

// Butterflies over each bit of a number's place: two bits within a thread, five across the warp's lanes.
__device__ inline void transform(float (&x)[kOfLane]) {
  SLUICE_UNROLL
  for (int half = 1; half < kOfLane; half *= 2) {
    SLUICE_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      if ((i & half) != 0) continue;
      const float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
  for (int distance = 1; distance < 32; distance *= 2) {
    const bool high = (static_cast<int>(threadIdx.x) & distance) != 0;
    SLUICE_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      const float other = __shfl_xor_sync(kLanes, x[i], distance);
      x[i] = high ? other - x[i] : x[i] + other;
    }
  }
  SLUICE_UNROLL
  for (int i = 0; i < kOfLane; ++i) x[i] *= 0.08838834764831845F;  // 1 / √128
}

__device__ inline int64_t group_of_warp() { return ops::kernels::global_thread() / 32; }

__global__ void encode_groups(const CodeJob job, int64_t groups) {
  const int64_t group = group_of_warp();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t first = group * kGroup + lane * kOfLane;
  float x[kOfLane] = {};
  for (int i = 0; i < kOfLane; ++i)
    if (first + i < job.count) x[i] = job.numbers[first + i];
  if (job.of_4_bits) transform(x);
  float largest = 0, check = 0;  // nonzero if any number is not finite
  for (int i = 0; i < kOfLane; ++i) {
    largest = fmaxf(largest, fabsf(x[i]));
    check += x[i] - x[i];
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kLanes, largest, distance));
    check += __shfl_xor_sync(kLanes, check, distance);
  }
  const float most = job.of_4_bits ? 7.0F : 127.0F;
  const bool finite = check == 0;
  const float factor = finite ? largest / most : __uint_as_float(0x7fc00000U);
  const float divisor = factor == 0 ? 1.0F : factor;
  int whole[kOfLane];
  for (int i = 0; i < kOfLane; ++i) {
    const float rounded = floorf(x[i] / divisor + added(job, first + i));
    whole[i] = finite ? static_cast<int>(fminf(fmaxf(rounded, -most), most)) : 0;
  }
  const bool inside = group < groups;
  if (job.of_4_bits) {
    for (int i = 0; i < kOfLane; ++i) {
      const auto high = static_cast<int>(__shfl_xor_sync(kLanes, static_cast<float>(whole[i]), 16));
      if (inside && lane < 16)
        job.codes[group * (kGroup / 2) + lane * kOfLane + i] =
            static_cast<uint8_t>((whole[i] + 8) | ((high + 8) << 4));
    }
  } else {
    for (int i = 0; i < kOfLane; ++i)
      if (inside) job.codes[first + i] = static_cast<uint8_t>(static_cast<int8_t>(whole[i]));
  }
  if (inside && lane == 0) memcpy(job.factors + group * 4, &factor, sizeof factor);
}

__global__ void decode_groups(const CodeJob job, float* numbers, int64_t groups) {
  const int64_t group = group_of_warp();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t first = group * kGroup + lane * kOfLane;
  float factor = 0;
  float x[kOfLane] = {};
  if (group < groups) {
    memcpy(&factor, job.factors + group * 4, sizeof factor);
    for (int i = 0; i < kOfLane; ++i) {
      if (job.of_4_bits) {
        const uint8_t both = job.codes[group * (kGroup / 2) + lane % 16 * kOfLane + i];
        x[i] = static_cast<float>((lane < 16 ? both & 15 : both >> 4) - 8) * factor;
      } else {
        x[i] = static_cast<float>(static_cast<int8_t>(job.codes[first + i])) * factor;
      }
    }
  }
  if (job.of_4_bits) transform(x);
  for (int i = 0; i < kOfLane; ++i)
    if (group < groups && first + i < job.count) numbers[first + i] = x[i];
}

int64_t groups_in(const CodeJob& job) { return (job.count + kGroup - 1) / kGroup; }

}  // namespace

Status launch_encode(const CodeJob& job, Stream stream) {
  const int64_t groups = groups_in(job);
  return ops::kernels::launch(encode_groups, ops::kernels::blocks_for(groups * 32), stream, CodeJob(job),
                              int64_t(groups));
}

Status launch_decode(const CodeJob& job, float* numbers, Stream stream) {
  const int64_t groups = groups_in(job);
  return ops::kernels::launch(decode_groups, ops::kernels::blocks_for(groups * 32), stream, CodeJob(job),
                              static_cast<float*>(numbers), int64_t(groups));
}

}  // namespace sluice::runtime
