// How a part of a block takes its input from the residual stream and joins its result to it. The input is
// normed unless the norm stands behind the part. The result is x + factor · (a·w + bias). With a norm behind
// the part it is x + norm(a·w + bias) or norm(x + a·w + bias).
//
// Row names: S rows of this TP rank's shard, T all rows. Widths: H hidden, A the input of w, cut over the TP
// ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/product.h"
#include "layers/row_norm.h"
#include "model/layer.h"

namespace sluice::layers {

struct PartInput {
  at::Tensor y_SH;           // input of the part
  at::Tensor inverse_rms_S;  // by row; undefined without a norm
};
PartInput enter(const model::Part& part, const at::Tensor& x_SH, const NormVectors& norm);

// The gradient of x_SH: through the part, plus dy_SH along the residual. Adds the norm's to `dnorm`.
struct PartInputGradient {
  at::Tensor dx_SH;
  at::Tensor y_SH;  // recomputed, for weight gradients
};
PartInputGradient enter_backward(const model::Part& part, const at::Tensor& dinput_SH, const at::Tensor& x_SH,
                                 const NormVectors& norm, const at::Tensor& inverse_rms_S,
                                 const at::Tensor& dy_SH, const NormVectors& dnorm);

// The weights that join a part's rows `a` to the residual stream: a matrix, an optional bias and an optional
// norm behind; or the gradients of these.
struct Exit {
  Matrix w_AH;
  at::Tensor bias_H;
  NormVectors norm;
};

// Returns the sum and leaves x_SH unchanged. With a norm behind the part, stores the norm's input in
// `product_SH` (null: not wanted) for join_backward.
at::Tensor join(const LayerContext& context, const model::Part& part, const at::Tensor& x_SH,
                const at::Tensor& a_TA, const Exit& exit, at::Tensor* product_SH = nullptr);

// Recomputes the part's result, the input of the norm behind it.
at::Tensor joined_product(const LayerContext& context, const at::Tensor& a_TA, const Exit& exit);

// The gradient of a·w from that of the result. With a norm of the sum this is the gradient of x, too; else x
// has dy_SH. Adds the gradients of norm and bias to `gradients`.
at::Tensor join_backward(const model::Part& part, const at::Tensor& dy_SH, const Exit& exit,
                         const at::Tensor& product_SH, const Exit& gradients);

}  // namespace sluice::layers
