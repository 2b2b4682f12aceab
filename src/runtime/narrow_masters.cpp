#include "runtime/narrow_masters.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>

#include "runtime/chance.h"

namespace sluice::runtime {

at::Tensor read_masters(const OwnerSlice& slice, base::Interval some) {
  const at::Tensor part = slice.master.narrow(0, some.begin, some.size());
  return is_narrow(slice.master) ? part.to(slice.gradient.scalar_type()) : part;
}

uint64_t master_chance(int64_t update, int bucket) {
  return uint64_t{hashed(static_cast<uint32_t>(update))} << 32 | hashed(~static_cast<uint32_t>(bucket));
}

void write_masters(const OwnerSlice& slice, int64_t first, const at::Tensor& numbers, uint64_t seed) {
  if (!is_narrow(slice.master)) return;
  slice.master.narrow(0, first, numbers.numel())
      .copy_(rounded_by_chance(numbers, seed, slice.owned.begin + first));
}

// The 16 bits below a bfloat16's last are a fraction of its last place. Adding 16 random bits carries with
// that probability; the remaining low bits are cut off.
at::Tensor rounded_by_chance(const at::Tensor& x, uint64_t seed, int64_t place) {
  const at::Tensor x_N = x.to(at::kFloat);
  constexpr int64_t kLowBits = 16, kHigh = ~int64_t{0xffff};
  const at::Tensor chance_N = all_hashed(place, x_N.numel(), seed, kLowBits, x_N.device());
  const at::Tensor rounded_N =
      x_N.view(at::kInt).add(chance_N).bitwise_and_(static_cast<int32_t>(kHigh)).view(at::kFloat);
  return at::where(at::isfinite(x_N), rounded_N, x_N).to(at::kBFloat16);
}

}  // namespace sluice::runtime
