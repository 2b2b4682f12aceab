#include "layers/residual.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include <utility>

#include "ops/norm.h"

namespace sluice::layers {

PartInput enter(const model::Part& part, const at::Tensor& x_SH, const at::Tensor& norm_H) {
  if (!norm_H.defined()) return {x_SH, {}};
  ops::RmsNorm norm = ops::rms_norm(x_SH, norm_H, part.before->eps, part.before->offset);
  return {std::move(norm.y_TH), std::move(norm.inverse_rms_T)};
}

PartInputGradient enter_backward(const model::Part& part, const at::Tensor& dinput_SH, const at::Tensor& x_SH,
                                 const at::Tensor& norm_H, const at::Tensor& inverse_rms_S,
                                 const at::Tensor& dy_SH, const at::Tensor& dnorm_H) {
  if (!norm_H.defined()) return {dinput_SH + dy_SH, x_SH};
  ops::RmsNormGradient norm =
      ops::rms_norm_backward(dinput_SH, x_SH, norm_H, inverse_rms_S, dy_SH, dnorm_H, part.before->offset);
  return {std::move(norm.dx_TH), std::move(norm.y_TH)};
}

at::Tensor joined_product(const LayerContext& context, const at::Tensor& a_TA, const Exit& exit) {
  at::Tensor product = context.parallel.reduce_scatter_rows(times(a_TA, exit.w_AH));
  return exit.bias_H.defined() ? product.add_(exit.bias_H) : product;
}

at::Tensor join(const LayerContext& context, const model::Part& part, const at::Tensor& x_SH,
                const at::Tensor& a_TA, const Exit& exit, at::Tensor* product_SH) {
  if (exit.norm_H.defined()) {
    at::Tensor product = joined_product(context, a_TA, exit);
    at::Tensor y_SH =
        ops::rms_norm(product, exit.norm_H, part.behind->eps, part.behind->offset).y_TH.add_(x_SH);
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
  if (exit.norm_H.defined()) {
    const at::Tensor scale_S =
        ops::rms_norm(product_SH, exit.norm_H, part.behind->eps, part.behind->offset).inverse_rms_T;
    dproduct_SH = ops::rms_norm_backward(dy_SH, product_SH, exit.norm_H, scale_S, /*residual_TH=*/{},
                                         gradients.norm_H, part.behind->offset)
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
