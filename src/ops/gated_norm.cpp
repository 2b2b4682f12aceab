#include "ops/gated_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "ops/norm.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

at::Tensor in_float(const at::Tensor& x) { return x.to(accumulator_type(x)); }

// The RMS scale of groups' rows [T, groups, V ÷ groups].
at::Tensor group_scale(const at::Tensor& x_TGW, double eps) {
  return at::rsqrt(x_TGW.square().mean(-1, /*keepdim=*/true) + eps);
}

at::Tensor opened(const at::Tensor& gate, HeadGate kind) {
  return kind == HeadGate::kSilu ? at::silu(gate) : at::sigmoid(gate);
}
at::Tensor gate_backward(const at::Tensor& dopen, const at::Tensor& gate, HeadGate kind) {
  return kind == HeadGate::kSilu ? at::silu_backward(dopen, gate)
                                 : at::sigmoid_backward(dopen, at::sigmoid(gate));
}

}  // namespace

at::Tensor gated_head_norm(const at::Tensor& x_TV, const at::Tensor& gate_TV, const at::Tensor& weight_D,
                           double eps, HeadGate gate) {
  const at::Tensor heads_RD = x_TV.reshape({-1, weight_D.size(0)});
  return rms_norm(heads_RD, weight_D, eps).y_TH.view(gate_TV.sizes()) * opened(gate_TV, gate);
}

GatedNormGradient gated_head_norm_backward(const at::Tensor& dy_TV, const at::Tensor& x_TV,
                                           const at::Tensor& gate_TV, const at::Tensor& weight_D, double eps,
                                           const at::Tensor& dweight_D, HeadGate gate) {
  const int64_t width = weight_D.size(0);
  const at::Tensor heads_RD = x_TV.reshape({-1, width});
  const RmsNorm norm = rms_norm(heads_RD, weight_D, eps);
  GatedNormGradient gradient;
  gradient.dgate_TV = gate_backward(dy_TV * norm.y_TH.view(gate_TV.sizes()), gate_TV, gate);
  gradient.dx_TV = rms_norm_backward((dy_TV * opened(gate_TV, gate)).reshape({-1, width}), heads_RD, weight_D,
                                     norm.inverse_rms_T, /*residual_TH=*/{}, dweight_D)
                       .dx_TH.view(gate_TV.sizes());
  return gradient;
}

at::Tensor gated_group_norm(const at::Tensor& x_TV, const at::Tensor& gate_TV, const at::Tensor& weight_V,
                            int64_t groups, double eps) {
  const at::Tensor x_TGW = (in_float(x_TV) * at::silu(in_float(gate_TV))).unflatten(1, {groups, -1});
  return ((x_TGW * group_scale(x_TGW, eps)).flatten(1) * weight_V).to(gate_TV.scalar_type());
}

GatedNormGradient gated_group_norm_backward(const at::Tensor& dy_TV, const at::Tensor& x_TV,
                                            const at::Tensor& gate_TV, const at::Tensor& weight_V,
                                            int64_t groups, double eps, const at::Tensor& dweight_V) {
  const at::Tensor dy = in_float(dy_TV), x = in_float(x_TV), gate = in_float(gate_TV), open = at::silu(gate);
  const at::Tensor x_TGW = (x * open).unflatten(1, {groups, -1});
  const at::Tensor scale_TG1 = group_scale(x_TGW, eps), normed_TGW = x_TGW * scale_TG1;
  if (dweight_V.defined()) {
    at::Tensor sum_V = dweight_V;
    sum_V.add_((dy * normed_TGW.flatten(1)).sum(0));
  }
  const at::Tensor d_TGW = (dy * weight_V).unflatten(1, {groups, -1});
  const at::Tensor mean_TG1 = (d_TGW * normed_TGW).mean(-1, /*keepdim=*/true);
  const at::Tensor dx_TV = ((d_TGW - normed_TGW * mean_TG1) * scale_TG1).flatten(1);
  const at::ScalarType type = gate_TV.scalar_type();
  return {(dx_TV * open).to(type), at::silu_backward(dx_TV * x, gate).to(type)};
}

}  // namespace sluice::ops
