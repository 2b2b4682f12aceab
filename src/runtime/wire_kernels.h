// Codecs of the wire (strategy/wire_codec.h) on a GPU: one warp for each group, which is read and written
// once. Raw pointers and a stream; no libtorch. Built with CUDA only.
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"

namespace sluice::runtime {

// 128 numbers a group; the last group is padded with zeros. `codes`: 128 bytes for each group, or 64 with 4
// bits. `factors`: 4 bytes for each group, at any address.
struct CodeJob {
  const float* numbers = nullptr;
  uint8_t* codes = nullptr;
  uint8_t* factors = nullptr;
  int64_t count = 0;       // numbers
  bool of_4_bits = false;  // 4 bits after a Hadamard transform; else 8 bits
  bool by_chance = false;  // stochastic rounding with `seed`; else to the nearest
  uint64_t seed = 0;
};
ops::kernels::Status launch_encode(const CodeJob& job, ops::kernels::Stream stream);
// Decodes into `numbers`.
ops::kernels::Status launch_decode(const CodeJob& job, float* numbers, ops::kernels::Stream stream);

}  // namespace sluice::runtime
