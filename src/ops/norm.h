// RMSNorm, forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/rms_norm_result.h"

namespace sluice::ops {

RmsNorm rms_norm(const at::Tensor& x_TH, const at::Tensor& weight_H, double eps, double offset = 0);

// Returns the gradient of x, plus `residual_TH` (the shape of x, or undefined: nothing is added), the
// gradient that bypasses the norm. Adds the weight's gradient to dweight_H, whose type may be wider than x's,
// unless dweight_H is undefined. Sums over rows are taken in blocks of fixed size, so results don't depend on
// the number of threads.
RmsNormGradient rms_norm_backward(const at::Tensor& dy_TH, const at::Tensor& x_TH, const at::Tensor& weight_H,
                                  const at::Tensor& inverse_rms_T, const at::Tensor& residual_TH,
                                  const at::Tensor& dweight_H, double offset = 0);

// The same from ATen's operators: for any device, and as the reference in tests of the fused CPU kernels.
namespace aten {
RmsNorm rms_norm(const at::Tensor& x_TH, const at::Tensor& weight_H, double eps, double offset = 0);
RmsNormGradient rms_norm_backward(const at::Tensor& dy_TH, const at::Tensor& x_TH, const at::Tensor& weight_H,
                                  const at::Tensor& inverse_rms_T, const at::Tensor& residual_TH,
                                  const at::Tensor& dweight_H, double offset = 0);
}  // namespace aten

}  // namespace sluice::ops
