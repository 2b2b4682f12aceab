// Codecs of the wire (strategy/wire_codec.h) on a GPU: a group a warp, read and written once. Raw pointers
// and a stream; no libtorch. Built with CUDA only.
#pragma once

#include <cstdint>

#include "ops/kernels.h"

namespace sluice::runtime {

// 128 numbers a group, the last one filled up with zeros. `codes`: of each group 128 bytes, or, of 4 bits,
// 64; `factors`: of each group 4 bytes, at any address.
struct CodeJob {
  const float* numbers = nullptr;
  uint8_t* codes = nullptr;
  uint8_t* factors = nullptr;
  int64_t count = 0;       // of numbers
  bool of_4_bits = false;  // behind a Hadamard transform
  bool by_chance = false;  // of this seed; else to the nearest
  uint64_t seed = 0;
};
ops::kernels::Status launch_encode(const CodeJob& job, ops::kernels::Stream stream);
// Back into `numbers`.
ops::kernels::Status launch_decode(const CodeJob& job, float* numbers, ops::kernels::Stream stream);

}  // namespace sluice::runtime
