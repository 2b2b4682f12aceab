#include "runtime/wire_codec.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "base/error.h"

namespace sluice::runtime {
namespace {

using strategy::Codec;
using strategy::kCodecGroup;

int64_t groups_of(int64_t numbers) { return (numbers + kCodecGroup - 1) / kCodecGroup; }

// The largest whole number: those below zero mirror those above.
int64_t largest(Codec codec) { return codec == Codec::kInt8 ? 127 : 7; }

// Sylvester's matrix over the root of its size, which is its own inverse. [kCodecGroup, kCodecGroup]
at::Tensor hadamard(const at::TensorOptions& options) {
  at::Tensor matrix = at::ones({1, 1}, options);
  while (matrix.size(0) < kCodecGroup)
    matrix = at::cat({at::cat({matrix, matrix}, 1), at::cat({matrix, -matrix}, 1)});
  return matrix / std::sqrt(static_cast<double>(kCodecGroup));
}

// Even in [0, 1): element i's depends on i and the seed alone (a finaliser of MurmurHash3, Appleby, 2011).
at::Tensor chances(int64_t numbers, uint64_t seed, const at::Tensor& like) {
  const auto as_int = [](uint32_t bits) { return static_cast<int64_t>(static_cast<int32_t>(bits)); };
  at::Tensor bits = at::arange(numbers, like.options().dtype(at::kInt)).mul_(as_int(0x9e3779b9U));
  bits.add_(as_int(static_cast<uint32_t>(seed))).bitwise_xor_(as_int(static_cast<uint32_t>(seed >> 32)));
  const auto shifted = [&](int64_t by) {
    return bits.__rshift__(by).bitwise_and_((int64_t{1} << (32 - by)) - 1);
  };
  bits.bitwise_xor_(shifted(16)).mul_(as_int(0x85ebca6bU));
  bits.bitwise_xor_(shifted(13)).mul_(as_int(0xc2b2ae35U));
  bits.bitwise_xor_(shifted(16));
  return shifted(8).to(like.scalar_type()).mul_(1.0 / (1 << 24));
}

at::Tensor as_bytes(const at::Tensor& x) { return x.contiguous().flatten().view(at::kByte); }

}  // namespace

at::Tensor encode(Codec codec, const at::Tensor& x_N, uint64_t seed) {
  if (codec == Codec::kBFloat16) return as_bytes(x_N.to(at::kBFloat16));
  SLUICE_ASSERT(codec != Codec::kNone, "numbers that travel as they are are not coded");
  const int64_t groups = groups_of(x_N.numel());
  at::Tensor x_GC =
      at::constant_pad_nd(x_N, {0, groups * kCodecGroup - x_N.numel()}).view({groups, kCodecGroup});
  if (codec == Codec::kInt4) x_GC = at::matmul(x_GC, hadamard(x_GC.options()));
  const int64_t most = largest(codec);
  const at::Tensor factor_G1 = (x_GC.abs().amax(1, /*keepdim=*/true) / most).to(at::kFloat);
  const at::Tensor divisor_G1 = at::where(factor_G1 == 0, 1.0, factor_G1).to(x_GC.scalar_type());
  const at::Tensor whole_GC = (x_GC / divisor_G1)
                                  .add_(chances(x_GC.numel(), seed, x_GC).view_as(x_GC))
                                  .floor_()
                                  .nan_to_num_(0)
                                  .clamp_(-most, most);
  if (codec == Codec::kInt8) return at::cat({as_bytes(whole_GC.to(at::kChar)), as_bytes(factor_G1)});
  const at::Tensor nibble_GC = whole_GC.add(8).to(at::kByte);
  const int64_t half = kCodecGroup / 2;
  const at::Tensor both = nibble_GC.narrow(1, 0, half) + nibble_GC.narrow(1, half, half) * 16;
  return at::cat({as_bytes(both), as_bytes(factor_G1)});
}

void decode(Codec codec, const at::Tensor& bytes, const at::Tensor& x_N) {
  if (codec == Codec::kBFloat16) {
    x_N.copy_(bytes.view(at::kBFloat16));
    return;
  }
  const int64_t groups = groups_of(x_N.numel()), wide = codec == Codec::kInt8 ? kCodecGroup : kCodecGroup / 2;
  const at::Tensor codes = bytes.narrow(0, 0, groups * wide).view({groups, wide});
  // Bytes may lie where no float can.
  const at::Tensor factor_G1 =
      bytes.narrow(0, groups * wide, groups * 4).clone().view(at::kFloat).view({groups, 1});
  at::Tensor whole_GC;
  if (codec == Codec::kInt8) {
    whole_GC = codes.view(at::kChar).to(x_N.scalar_type());
  } else {
    whole_GC = at::cat({codes.bitwise_and(15), codes.__rshift__(4)}, 1).to(x_N.scalar_type()).sub_(8);
  }
  whole_GC.mul_(factor_G1.to(x_N.scalar_type()));
  if (codec == Codec::kInt4) whole_GC = at::matmul(whole_GC, hadamard(whole_GC.options()));
  x_N.copy_(whole_GC.flatten().narrow(0, 0, x_N.numel()));
}

}  // namespace sluice::runtime
