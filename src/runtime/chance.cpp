#include "runtime/chance.h"

#include <ATen/ops/arange.h>

namespace sluice::runtime {

at::Tensor all_hashed(int64_t first, int64_t numbers, uint64_t seed, int64_t shift, c10::Device device) {
  const auto as_int = [](uint32_t bits) { return static_cast<int64_t>(static_cast<int32_t>(bits)); };
  at::Tensor bits = at::arange(numbers, at::TensorOptions().dtype(at::kInt).device(device));
  bits.mul_(as_int(kStep)).add_(as_int(static_cast<uint32_t>(first) * kStep + static_cast<uint32_t>(seed)));
  bits.bitwise_xor_(as_int(static_cast<uint32_t>(seed >> 32)));
  const auto shifted = [&](int64_t by) {
    return bits.__rshift__(by).bitwise_and_((int64_t{1} << (32 - by)) - 1);
  };
  bits.bitwise_xor_(shifted(16)).mul_(as_int(0x85ebca6bU));
  bits.bitwise_xor_(shifted(13)).mul_(as_int(0xc2b2ae35U));
  bits.bitwise_xor_(shifted(16));
  return shifted(shift);
}

}  // namespace sluice::runtime
