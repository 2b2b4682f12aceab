// Encodes and decodes numbers by strategy/wire_codec.h, on their device. The same numbers and seed give the
// same bits on the same kind of device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "runtime/chance.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {

// x [N] of float or double, contiguous -> their coded_bytes(), uint8. A group with infinities or NaN comes
// back as NaN, so that they are seen. REQUIRES: not kNone.
at::Tensor encode(strategy::Codec codec, const at::Tensor& x_N, Seed seed);
// Decodes into x [N].
void decode(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N);

// The same by ATen's operators, on any device: reference for tests of the functions above.
namespace aten {
at::Tensor encode(strategy::Codec codec, const at::Tensor& x_N, Seed seed);
void decode(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N);
}  // namespace aten

// The same by GPU kernels; built with CUDA only. REQUIRES: a codec of 8 or 4 bits; float, dense, on a GPU.
void encode_by_kernel(strategy::Codec codec, const at::Tensor& x_N, Seed seed, const at::Tensor& bytes);
void decode_by_kernel(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N);

// Numbers that travel together: all of them coded, followed by unchanged copies of those that no codec may
// change.
struct CodedPart {
  strategy::Codec codec = strategy::Codec::kNone;
  int64_t numbers = 0;
  std::vector<base::Interval> exact;  // ascending

  int64_t coded() const;  // bytes of the coded numbers
  int64_t bytes(int64_t wide) const;
};
// x [N] of float, double or bfloat16 -> part.bytes() of them, and back.
void encode(const CodedPart& part, const at::Tensor& x_N, Seed seed, const at::Tensor& bytes);
void decode(const CodedPart& part, const at::Tensor& bytes, const at::Tensor& x_N);

// The parts of `exact` inside `some`, relative to its beginning. REQUIRES: ascending.
std::vector<base::Interval> exact_in(const std::vector<base::Interval>& exact, base::Interval some);

}  // namespace sluice::runtime
