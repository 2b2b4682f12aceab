// RMSNorm with a gate, of what recurrent layers give: of each head before it is gated (Gated DeltaNet), or of
// a group of heads as one row once they are (Mamba-2).
//
// T rows, V a row's width, D a head's; the gradients of weights are added, unless undefined.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::ops {

struct GatedNormGradient {
  at::Tensor dx_TV;
  at::Tensor dgate_TV;
};

// The share that a gate lets through.
enum class HeadGate : uint8_t { kSilu, kSigmoid };

// norm(x)·w∘silu(gate), or ∘sigmoid(gate), D = w's width.
at::Tensor gated_head_norm(const at::Tensor& x_TV, const at::Tensor& gate_TV, const at::Tensor& weight_D,
                           double eps, HeadGate gate = HeadGate::kSilu);
GatedNormGradient gated_head_norm_backward(const at::Tensor& dy_TV, const at::Tensor& x_TV,
                                           const at::Tensor& gate_TV, const at::Tensor& weight_D, double eps,
                                           const at::Tensor& dweight_D, HeadGate gate = HeadGate::kSilu);

// norm(x∘silu(gate))·w, so many groups side by side; computed in float (double of double).
at::Tensor gated_group_norm(const at::Tensor& x_TV, const at::Tensor& gate_TV, const at::Tensor& weight_V,
                            int64_t groups, double eps);
GatedNormGradient gated_group_norm_backward(const at::Tensor& dy_TV, const at::Tensor& x_TV,
                                            const at::Tensor& gate_TV, const at::Tensor& weight_V,
                                            int64_t groups, double eps, const at::Tensor& dweight_V);

}  // namespace sluice::ops
