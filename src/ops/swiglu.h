// SwiGLU: silu(gate) · up.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

// gate_up_TG holds gate in columns [0, F) and up in [F, 2F), G = 2F. Result [T, F].
at::Tensor swiglu(const at::Tensor& gate_up_TG);

// Overwrites gate_up_TG with its gradient and returns the forward's result again, the input of the next
// matrix's weight gradient, so that the forward need not save it.
at::Tensor swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG);

namespace aten {
at::Tensor swiglu(const at::Tensor& gate_up_TG);
at::Tensor swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG);
}  // namespace aten

}  // namespace sluice::ops
