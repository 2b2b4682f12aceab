// With c = x − mean(x), r = (mean(c²) + eps)^-1/2 and n = c·r, LayerNorm is w·n + b, and c has the gradient
// of RMSNorm. Subtracting the mean is a projection, so its backward is the same: dx = dc − mean(dc).
#include "layers/row_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include "ops/norm.h"

namespace sluice::layers {
namespace {

at::Tensor widened(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); }

at::Tensor less_mean(const at::Tensor& x_TH) { return x_TH - x_TH.mean(-1, /*keepdim=*/true); }

// RMSNorm's operands. LayerNorm's are widened, because the difference from a mean is small beside the mean.
struct NormInput {
  at::Tensor x_TH, weight_H;
};
NormInput input_of(const model::Norm& norm, const at::Tensor& x_TH, const at::Tensor& weight_H) {
  const bool layer = norm.kind == model::NormKind::kLayer;
  const at::Tensor x = layer ? less_mean(widened(x_TH)) : x_TH;
  if (!weight_H.defined()) return {x, at::ones({x.size(-1)}, x.options())};
  return {x, layer ? widened(weight_H) : weight_H};
}

// Completes LayerNorm: adds the bias and returns to the rows' type.
at::Tensor finished(at::Tensor y_TH, const at::Tensor& bias_H, const at::Tensor& like) {
  if (bias_H.defined()) y_TH.add_(bias_H);
  return y_TH.to(like.scalar_type());
}

}  // namespace

NormVectors norm_vectors(const OperationShards& shards, const model::Norm& norm) {
  NormVectors vectors;
  if (!norm.weights.empty()) vectors.weight_H = shards.vector(norm.weights[0].role);
  if (norm.weights.size() > 1) vectors.bias_H = shards.vector(norm.weights[1].role);
  return vectors;
}

NormVectors final_vectors(const HeadParameters& parameters) {
  return {parameters.final_norm_H, parameters.final_norm_bias_H};
}

ops::RmsNorm norm_rows(const model::Norm& norm, const at::Tensor& x_TH, const NormVectors& vectors) {
  if (norm.kind == model::NormKind::kNone)
    return {x_TH.clone(), at::ones({x_TH.size(0)}, x_TH.options().dtype(widened(x_TH).scalar_type()))};
  const NormInput input = input_of(norm, x_TH, vectors.weight_H);
  ops::RmsNorm result = ops::rms_norm(input.x_TH, input.weight_H, norm.eps, norm.offset);
  if (norm.kind == model::NormKind::kLayer) result.y_TH = finished(result.y_TH, vectors.bias_H, x_TH);
  return result;
}

ops::RmsNormGradient norm_rows_backward(const model::Norm& norm, const at::Tensor& dy_TH,
                                        const at::Tensor& x_TH, const NormVectors& vectors,
                                        const at::Tensor& inverse_rms_T, const at::Tensor& residual_TH,
                                        const NormVectors& gradients) {
  if (norm.kind == model::NormKind::kNone)
    return {residual_TH.defined() ? dy_TH + residual_TH : dy_TH.clone(), x_TH};
  const NormInput input = input_of(norm, x_TH, vectors.weight_H);
  if (norm.kind == model::NormKind::kRms) {
    return ops::rms_norm_backward(dy_TH, input.x_TH, input.weight_H, inverse_rms_T, residual_TH,
                                  gradients.weight_H, norm.offset);
  }
  const at::Tensor dy = widened(dy_TH);
  if (gradients.bias_H.defined()) gradients.bias_H.add_(dy.sum(0, false, gradients.bias_H.scalar_type()));
  ops::RmsNormGradient result = ops::rms_norm_backward(dy, input.x_TH, input.weight_H, inverse_rms_T,
                                                       /*residual_TH=*/{}, gradients.weight_H, norm.offset);
  at::Tensor dx = less_mean(result.dx_TH);
  if (residual_TH.defined()) dx.add_(residual_TH);
  return {dx.to(x_TH.scalar_type()), finished(result.y_TH, vectors.bias_H, x_TH)};
}

}  // namespace sluice::layers
