// How a part of a block takes its input from the rows that pass, normed or (where its norm stands behind it)
// as they are, and how it joins them again: x + factor · (a·w + bias), or with a norm behind it
// x + norm(a·w + bias) or norm(x + a·w + bias).
//
// Row names: S rows of this TP rank's shard, T all rows; H hidden, A the width that w takes, cut over the TP
// ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/product.h"
#include "layers/row_norm.h"
#include "model/layer.h"

namespace sluice::layers {

struct PartInput {
  at::Tensor y_SH;           // what the part works on
  at::Tensor inverse_rms_S;  // of the norm; undefined without one
};
PartInput enter(const model::Part& part, const at::Tensor& x_SH, const NormVectors& norm);

// The gradient of x_SH: through the part, plus dy_SH, which passes the part by. Adds the norm's to `dnorm`.
struct PartInputGradient {
  at::Tensor dx_SH;
  at::Tensor y_SH;  // again, for weight gradients
};
PartInputGradient enter_backward(const model::Part& part, const at::Tensor& dinput_SH, const at::Tensor& x_SH,
                                 const NormVectors& norm, const at::Tensor& inverse_rms_S,
                                 const at::Tensor& dy_SH, const NormVectors& dnorm);

// What a part's rows a pass on their way to those that pass: the matrix, a bias or none, and a norm behind it
// or none; or the gradients of these.
struct Exit {
  Matrix w_AH;
  at::Tensor bias_H;
  NormVectors norm;
};

// The result, x_SH untouched. With a norm behind `product_SH`, where wanted, is left what the norm took,
// which join_backward wants back.
at::Tensor join(const LayerContext& context, const model::Part& part, const at::Tensor& x_SH,
                const at::Tensor& a_TA, const Exit& exit, at::Tensor* product_SH = nullptr);

// What the norm behind took, made again.
at::Tensor joined_product(const LayerContext& context, const at::Tensor& a_TA, const Exit& exit);

// The gradient of a·w from that of the result (that of x is the same, or where the norm is of the sum this).
// Adds those of norm and bias to `gradients`.
at::Tensor join_backward(const model::Part& part, const at::Tensor& dy_SH, const Exit& exit,
                         const at::Tensor& product_SH, const Exit& gradients);

}  // namespace sluice::layers
