// T: rows, N: heads, D: dimensions of a head (D/2 pairs), P: positions.
//
// Each pair (a, b) = (x_i, x_{i+D/2}) is rotated by the angle position · frequency_i:
//   a' = a·cos - b·sin,   b' = b·cos + a·sin.
// The map is linear with matrix s·[[c, -s], [s, c]], so the gradient is its transpose: sin changes sign.
#include "ops/rotary.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <cmath>

#include "base/error.h"
#include "ops/cuda/gpu.h"
#include "ops/simd.h"

namespace sluice::ops {

RotaryTable rotary_table(std::span<const double> inverse_frequencies, double attention_scale,
                         int64_t positions, const at::TensorOptions& like) {
  const int64_t pairs = static_cast<int64_t>(inverse_frequencies.size());
  at::Tensor cos_PD = at::empty({positions, pairs}, at::TensorOptions().dtype(at::kDouble));
  at::Tensor sin_PD = at::empty({positions, pairs}, at::TensorOptions().dtype(at::kDouble));
  double* cos_values = cos_PD.mutable_data_ptr<double>();
  double* sin_values = sin_PD.mutable_data_ptr<double>();
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * inverse_frequencies[static_cast<size_t>(i)];
      cos_values[position * pairs + i] = std::cos(angle) * attention_scale;
      sin_values[position * pairs + i] = std::sin(angle) * attention_scale;
    }
  }
  const at::ScalarType wide = like.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  const at::TensorOptions options = like.dtype(wide);
  return {cos_PD.to(options), sin_PD.to(options)};
}

namespace aten {

void rotate(const at::Tensor& x_TND, const RotaryTable& table, const at::Tensor& position_T,
            Rotation rotation) {
  const at::Tensor cos_T1D = table.cos_PD.index_select(0, position_T).unsqueeze(1);
  at::Tensor sin_T1D = table.sin_PD.index_select(0, position_T).unsqueeze(1);
  if (rotation == Rotation::kBackward) sin_T1D = -sin_T1D;
  const int64_t pairs = table.cos_PD.size(1);
  at::Tensor low_TND = x_TND.narrow(2, 0, pairs);
  at::Tensor high_TND = x_TND.narrow(2, pairs, pairs);
  const at::Tensor new_low_TND = low_TND * cos_T1D - high_TND * sin_T1D;
  const at::Tensor new_high_TND = high_TND * cos_T1D + low_TND * sin_T1D;
  low_TND.copy_(new_low_TND);
  high_TND.copy_(new_high_TND);
}

}  // namespace aten

namespace {

template <typename S, typename A>
SLUICE_SIMD void rotate_heads(S* x, int64_t heads, int64_t dimension, int64_t pairs, const A* cos_row,
                              const A* sin_row, A sign) {
  for (int64_t head = 0; head < heads; ++head) {
    S* low = x + head * dimension;
    S* high = low + pairs;
#pragma omp simd
    for (int64_t i = 0; i < pairs; ++i) {
      const A a = static_cast<A>(low[i]);
      const A b = static_cast<A>(high[i]);
      const A s = sign * sin_row[i];
      low[i] = narrow<S>(a * cos_row[i] - b * s);
      high[i] = narrow<S>(b * cos_row[i] + a * s);
    }
  }
}

template <typename S>
void fused_rotate(const at::Tensor& x_TND, const RotaryTable& table, const at::Tensor& position_T, int sign) {
  using A = at::opmath_type<S>;
  const int64_t heads = x_TND.size(1), dimension = x_TND.size(2), stride = x_TND.stride(0);
  const int64_t pairs = table.cos_PD.size(1);
  S* x = x_TND.mutable_data_ptr<S>();
  const A* cos_values = table.cos_PD.const_data_ptr<A>();
  const A* sin_values = table.sin_PD.const_data_ptr<A>();
  const int64_t* positions = position_T.const_data_ptr<int64_t>();
  at::parallel_for(0, x_TND.size(0), 8192 / (heads * pairs) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t offset = positions[row] * pairs;
      rotate_heads<S, A>(x + row * stride, heads, dimension, pairs, cos_values + offset, sin_values + offset,
                         static_cast<A>(sign));
    }
  });
}

}  // namespace

void rotate(const at::Tensor& x_TND, const RotaryTable& table, const at::Tensor& position_T,
            Rotation rotation) {
  const int64_t dimension = x_TND.size(2);
  SLUICE_ASSERT(x_TND.stride(2) == 1 && x_TND.stride(1) == dimension, "heads must lie end to end in a row");
  RECORD_USER_SCOPE("sluice::rotate");
  if constexpr (gpu::kBuilt) {
    // A row's heads are adjacent, so checking one row tells whether the kernel takes the values' type.
    const bool whole = 2 * table.cos_PD.size(1) == dimension;
    const bool takes = whole && x_TND.is_cuda() && x_TND.size(0) > 0 && gpu::can({x_TND.select(0, 0)});
    if (takes) return gpu::rotate(x_TND, table, position_T, rotation);
  }
  if (!x_TND.device().is_cpu()) return aten::rotate(x_TND, table, position_T, rotation);
  SLUICE_DISPATCH(x_TND, "rotate", [&] {
    fused_rotate<scalar_t>(x_TND, table, position_T, rotation == Rotation::kForward ? 1 : -1);
  });
}

}  // namespace sluice::ops
