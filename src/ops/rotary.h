// Rotary position embedding, "rotate half" convention of Hugging Face: dimension i of a head pairs with
// i + D/2.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "ops/rotary_table.h"

namespace sluice::ops {

// `like` gives device and compute type.
RotaryTable rotary_table(std::span<const double> inverse_frequencies, double attention_scale,
                         int64_t positions, const at::TensorOptions& like);

// Rotates x_TND in place by the angles of each row's position. kBackward applies the transpose, which turns
// gradients of the rotated values into gradients of the unrotated ones. Tensor x_TND is a view whose heads
// are adjacent within a row ([T, N, D] with strides {s, D, 1}); position_T is int64, on x's device, every
// value < P. If the table has fewer pairs than heads have, only the first dimensions of each head are
// rotated.
void rotate(const at::Tensor& x_TND, const RotaryTable& table, const at::Tensor& position_T,
            Rotation rotation);

namespace aten {
void rotate(const at::Tensor& x_TND, const RotaryTable& table, const at::Tensor& position_T,
            Rotation rotation);
}  // namespace aten

}  // namespace sluice::ops
