// Huang and Schlag, Deriving Activation Functions Using Integration, 2024 (xIELU): a·x² + x/2 above zero and
// b·(expm1(min(x, −1e-6)) − x) + x/2 elsewhere, with a = softplus(α₀) and b = 1/2 + softplus(α₁). Computed in
// float (double for double) from ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

at::Tensor xielu(const at::Tensor& x_TF, const at::Tensor& alpha_2);
// The gradient of x; gradients of the alphas are added to dalpha_2, unless it is undefined.
at::Tensor xielu_backward(const at::Tensor& dy_TF, const at::Tensor& x_TF, const at::Tensor& alpha_2,
                          const at::Tensor& dalpha_2);

}  // namespace sluice::ops
