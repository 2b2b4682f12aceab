#include "layers/residual.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "ops/linear.h"
#include "ops/norm.h"

namespace sluice::layers {
namespace {

bool normed_behind(const LayerContext& context) {
  return context.shape.norm_place == model::NormPlace::kBehind;
}

}  // namespace

PartInput enter(const LayerContext& context, const at::Tensor& x_SH, const at::Tensor& norm_H) {
  if (normed_behind(context)) return {x_SH, {}};
  ops::RmsNorm norm = ops::rms_norm(x_SH, norm_H, context.shape.norm_eps);
  return {std::move(norm.y_TH), std::move(norm.inverse_rms_T)};
}

PartInputGradient enter_backward(const LayerContext& context, const at::Tensor& dinput_SH,
                                 const at::Tensor& x_SH, const at::Tensor& norm_H,
                                 const at::Tensor& inverse_rms_S, const at::Tensor& dy_SH,
                                 const at::Tensor& dnorm_H) {
  if (normed_behind(context)) return {dinput_SH + dy_SH, x_SH};
  ops::RmsNormGradient norm = ops::rms_norm_backward(dinput_SH, x_SH, norm_H, inverse_rms_S, dy_SH, dnorm_H);
  return {std::move(norm.dx_TH), std::move(norm.y_TH)};
}

at::Tensor joined_product(const LayerContext& context, const at::Tensor& a_TA, const at::Tensor& w_AH) {
  return context.parallel.reduce_scatter_rows(ops::times(a_TA, w_AH));
}

at::Tensor join(const LayerContext& context, const at::Tensor& x_SH, const at::Tensor& a_TA,
                const at::Tensor& w_AH, const at::Tensor& norm_H, at::Tensor* product_SH) {
  const double factor = context.shape.residual_scale;
  if (normed_behind(context)) {
    at::Tensor product = joined_product(context, a_TA, w_AH);
    at::Tensor y_SH = ops::rms_norm(product, norm_H, context.shape.norm_eps).y_TH.add_(x_SH);
    if (product_SH != nullptr) *product_SH = std::move(product);
    return y_SH;
  }
  if (context.parallel.tp == 1 && factor == 1.0) return ops::add_times(x_SH, a_TA, w_AH);
  at::Tensor product = joined_product(context, a_TA, w_AH);
  if (factor != 1.0) product.mul_(factor);
  return product.add_(x_SH);
}

at::Tensor join_backward(const LayerContext& context, const at::Tensor& dy_SH, const at::Tensor& norm_H,
                         const at::Tensor& product_SH, const at::Tensor& dnorm_H) {
  if (normed_behind(context)) {
    const at::Tensor scale_S = ops::rms_norm(product_SH, norm_H, context.shape.norm_eps).inverse_rms_T;
    return ops::rms_norm_backward(dy_SH, product_SH, norm_H, scale_S, /*residual_TH=*/{}, dnorm_H).dx_TH;
  }
  const double factor = context.shape.residual_scale;
  return factor == 1.0 ? dy_SH : dy_SH * factor;
}

}  // namespace sluice::layers
