// Matrix products of linear layers, forward and backward, and the accumulation of weight gradients.
//
// Weights come in two storages (model/parameters.h): [out, in], used as x·wᵀ, and [in, out], used as x·w.
// The gradient of x·wᵀ with respect to x is dy·w, that of x·w is dy·wᵀ, so two products serve all four.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

// x·w: x [T, A], w [A, B] -> [T, B].
at::Tensor times(const at::Tensor& x_TA, const at::Tensor& w_AB);

// x·wᵀ: x [T, A], w [B, A] -> [T, B].
at::Tensor times_transposed(const at::Tensor& x_TA, const at::Tensor& w_BA);

// Likewise, written to y [T, B].
void times_transposed_into(const at::Tensor& y_TB, const at::Tensor& x_TA, const at::Tensor& w_BA);

// base + x·w in one pass; base [T, B] is not changed.
at::Tensor add_times(const at::Tensor& base_TB, const at::Tensor& x_TA, const at::Tensor& w_AB);

// x·wᵀ in float (double for double), for results that must not be rounded to 16 bits. CPUs without a
// mixed-precision product round once nevertheless.
at::Tensor wide_times_transposed(const at::Tensor& x_TA, const at::Tensor& w_BA);

// gradient += aᵀ·b in place. It needs no temporary of the gradient's size if the types agree or the device
// multiplies 16-bit matrices into float. a [T, A], b [T, B], gradient [A, B] in float (double). For weights
// [out, in]: a = dy, b = x; for [in, out]: a = x, b = dy.
void accumulate_weight_gradient(const at::Tensor& gradient_AB, const at::Tensor& a_TA,
                                const at::Tensor& b_TB);

}  // namespace sluice::ops
