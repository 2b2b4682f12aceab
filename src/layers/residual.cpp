#include "layers/residual.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include <utility>

namespace sluice::layers {

PartInput enter(const model::Part& part, const at::Tensor& x_SH, const NormVectors& norm) {
  if (!part.before) return {x_SH, {}};
  ops::RmsNorm normed = norm_rows(*part.before, x_SH, norm);
  return {std::move(normed.y_TH), std::move(normed.inverse_rms_T)};
}

PartInputGradient enter_backward(const model::Part& part, const at::Tensor& dinput_SH, const at::Tensor& x_SH,
                                 const NormVectors& norm, const at::Tensor& inverse_rms_S,
                                 const at::Tensor& dy_SH, const NormVectors& dnorm) {
  if (!part.before) return {dinput_SH + dy_SH, x_SH};
  ops::RmsNormGradient normed =
      norm_rows_backward(*part.before, dinput_SH, x_SH, norm, inverse_rms_S, dy_SH, dnorm);
  return {std::move(normed.dx_TH), std::move(normed.y_TH)};
}

at::Tensor joined_product(const LayerContext& context, const at::Tensor& a_TA, const Exit& exit) {
  at::Tensor product = context.parallel.reduce_scatter_rows(times(a_TA, exit.w_AH));
  return exit.bias_H.defined() ? product.add_(exit.bias_H) : product;
}

at::Tensor join(const LayerContext& context, const model::Part& part, const at::Tensor& x_SH,
                const at::Tensor& a_TA, const Exit& exit, at::Tensor* product_SH) {
  if (part.behind) {
    at::Tensor product = joined_product(context, a_TA, exit);
    if (part.norms_sum) product.add_(x_SH);
    at::Tensor y_SH = norm_rows(*part.behind, product, exit.norm).y_TH;
    if (!part.norms_sum) y_SH.add_(x_SH);
    if (product_SH != nullptr) *product_SH = std::move(product);
    return y_SH;
  }
  const double factor = part.scale;
  if (context.parallel.tp == 1 && factor == 1.0 && !exit.bias_H.defined()) {
    return add_times(x_SH, a_TA, exit.w_AH);
  }
  at::Tensor product = joined_product(context, a_TA, exit);
  if (factor != 1.0) product.mul_(factor);
  return product.add_(x_SH);
}

at::Tensor join_backward(const model::Part& part, const at::Tensor& dy_SH, const Exit& exit,
                         const at::Tensor& product_SH, const Exit& gradients) {
  at::Tensor dproduct_SH = dy_SH;
  if (part.behind) {
    const at::Tensor scale_S = norm_rows(*part.behind, product_SH, exit.norm).inverse_rms_T;
    dproduct_SH = norm_rows_backward(*part.behind, dy_SH, product_SH, exit.norm, scale_S, /*residual_TH=*/{},
                                     gradients.norm)
                      .dx_TH;
  } else if (part.scale != 1.0) {
    dproduct_SH = dy_SH * part.scale;
  }
  if (gradients.bias_H.defined()) {
    gradients.bias_H.add_(dproduct_SH.sum(0, /*keepdim=*/false, gradients.bias_H.scalar_type()));
  }
  return dproduct_SH;
}

}  // namespace sluice::layers
