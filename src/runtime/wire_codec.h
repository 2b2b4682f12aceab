// Writes numbers as strategy/wire_codec.h says, and reads them, on their device. The same numbers and seed
// give the same bits, on the same kind of device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strategy/wire_codec.h"

namespace sluice::runtime {

// x [N] of float or double, contiguous -> coded_bytes() of them, uint8. Infinities and NaN come back as NaN
// from a group that has any, so that they are seen. REQUIRES: not kNone.
at::Tensor encode(strategy::Codec codec, const at::Tensor& x_N, uint64_t seed);
// Into x [N].
void decode(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N);

// The same by ATen's operators, on any device: what the above is tested against.
namespace aten {
at::Tensor encode(strategy::Codec codec, const at::Tensor& x_N, uint64_t seed);
void decode(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N);
}  // namespace aten

}  // namespace sluice::runtime
