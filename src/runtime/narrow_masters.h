// Masters that are kept in bfloat16: an update is computed wide and rounded by chance, so that the mean of
// what is kept is what wide masters would be, where steps are smaller than half of a last place. The chance
// is a pure function of the update, the bucket and the element: the same bits on any number of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/interval.h"
#include "runtime/parameter_store.h"

namespace sluice::runtime {

inline bool is_narrow(const at::Tensor& master) { return master.scalar_type() == c10::ScalarType::BFloat16; }

// The slice's masters from element `some.begin` of it on: themselves, or a copy of narrow ones, as wide as
// gradients are.
at::Tensor read_masters(const OwnerSlice& slice, base::Interval some);

// The seed by which masters of a bucket are rounded in one update.
uint64_t master_chance(int64_t update, int bucket);

// Those from `first` on, rounded by chance; nothing where they are what read_masters() gave. Infinities and
// NaN stay what they are.
void write_masters(const OwnerSlice& slice, int64_t first, const at::Tensor& numbers, uint64_t seed);

// x [N] of float or double -> bfloat16 [N]. `place`: of the first of them, for chance: down or up with a
// chance in proportion to how near either is.
at::Tensor rounded_by_chance(const at::Tensor& x_N, uint64_t seed, int64_t place);

}  // namespace sluice::runtime
