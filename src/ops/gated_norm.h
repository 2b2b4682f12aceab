// RMSNorm with a gate, for outputs of recurrent layers: over each head before the gate is applied (Gated
// DeltaNet), or over a group of heads as one row after the gate (Mamba-2).
//
// T rows, V a row's width, D a head's; gradients of weights are added to, unless undefined.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::ops {

struct GatedNormGradient {
  at::Tensor dx_TV;
  at::Tensor dgate_TV;
};

// The function of a gate that scales the output.
enum class HeadGate : uint8_t { kSilu, kSigmoid };

// norm(x)·w∘silu(gate), or ∘sigmoid(gate), D = w's width.
at::Tensor gated_head_norm(const at::Tensor& x_TV, const at::Tensor& gate_TV, const at::Tensor& weight_D,
                           double eps, HeadGate gate = HeadGate::kSilu);
GatedNormGradient gated_head_norm_backward(const at::Tensor& dy_TV, const at::Tensor& x_TV,
                                           const at::Tensor& gate_TV, const at::Tensor& weight_D, double eps,
                                           const at::Tensor& dweight_D, HeadGate gate = HeadGate::kSilu);

// norm(x∘silu(gate))·w over `groups` groups side by side; computed in float (double for double).
at::Tensor gated_group_norm(const at::Tensor& x_TV, const at::Tensor& gate_TV, const at::Tensor& weight_V,
                            int64_t groups, double eps);
GatedNormGradient gated_group_norm_backward(const at::Tensor& dy_TV, const at::Tensor& x_TV,
                                            const at::Tensor& gate_TV, const at::Tensor& weight_V,
                                            int64_t groups, double eps, const at::Tensor& dweight_V);

}  // namespace sluice::ops
