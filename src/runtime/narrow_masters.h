// Masters kept in bfloat16. An update is computed wide and rounded stochastically, so that the mean of the
// kept masters follows wide ones even if steps are smaller than half a unit in the last place. The random
// bits depend only on the update, the bucket and the element: results are the same on any number of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/interval.h"
#include "runtime/parameter_store.h"

namespace sluice::runtime {

inline bool is_narrow(const at::Tensor& master) { return master.scalar_type() == c10::ScalarType::BFloat16; }

// The slice's masters from element `some.begin` of it on: the tensor itself, or, for narrow masters, a copy
// as wide as gradients.
at::Tensor read_masters(const OwnerSlice& slice, base::Interval some);

// The seed by which masters of a bucket are rounded in one update.
uint64_t master_chance(int64_t update, int bucket);

// Stores masters from `first` on, rounded stochastically; no effect on numbers that read_masters() gave
// uncopied. Infinities and NaN stay unchanged.
void write_masters(const OwnerSlice& slice, int64_t first, const at::Tensor& numbers, uint64_t seed);

// x [N] of float or double -> bfloat16 [N]. `place`: the first element's, for rounding. Stochastic rounding:
// the nearer of the two neighbours is the likelier in proportion.
at::Tensor rounded_by_chance(const at::Tensor& x_N, uint64_t seed, int64_t place);

}  // namespace sluice::runtime
