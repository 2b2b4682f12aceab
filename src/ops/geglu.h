// GeGLU: gelu(gate) · up, with GELU's approximation 0.5·g·(1 + tanh(√(2/π)·(g + 0.044715·g³))) (Hendrycks and
// Gimpel, "Gaussian Error Linear Units"). As ops/swiglu.h; on GPUs from ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

at::Tensor geglu(const at::Tensor& gate_up_TG);
at::Tensor geglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG);

namespace aten {
at::Tensor geglu(const at::Tensor& gate_up_TG);
at::Tensor geglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG);
}  // namespace aten

}  // namespace sluice::ops
