// Writes numbers as strategy/wire_codec.h says, and reads them, on their device. The same numbers and seed
// give the same bits, on the same kind of device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "runtime/chance.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {

// x [N] of float or double, contiguous -> coded_bytes() of them, uint8. Infinities and NaN come back as NaN
// from a group that has any, so that they are seen. REQUIRES: not kNone.
at::Tensor encode(strategy::Codec codec, const at::Tensor& x_N, Seed seed);
// Into x [N].
void decode(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N);

// The same by ATen's operators, on any device: what the above is tested against.
namespace aten {
at::Tensor encode(strategy::Codec codec, const at::Tensor& x_N, Seed seed);
void decode(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N);
}  // namespace aten

// The same by GPU kernels; built with CUDA only. REQUIRES: of 8 or 4 bits, float, dense, on a GPU.
void encode_by_kernel(strategy::Codec codec, const at::Tensor& x_N, Seed seed, const at::Tensor& bytes);
void decode_by_kernel(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N);

// Numbers that travel together: all of them coded, and behind them those that no codec may change, as they
// are.
struct CodedPart {
  strategy::Codec codec = strategy::Codec::kNone;
  int64_t numbers = 0;
  std::vector<base::Interval> exact;  // ascending

  int64_t coded() const;  // bytes of the first
  int64_t bytes(int64_t wide) const;
};
// x [N] of float, double or bfloat16 -> part.bytes() of them, and back.
void encode(const CodedPart& part, const at::Tensor& x_N, Seed seed, const at::Tensor& bytes);
void decode(const CodedPart& part, const at::Tensor& bytes, const at::Tensor& x_N);

// What of `exact` lies in `some`, from its beginning on. REQUIRES: ascending.
std::vector<base::Interval> exact_in(const std::vector<base::Interval>& exact, base::Interval some);

}  // namespace sluice::runtime
