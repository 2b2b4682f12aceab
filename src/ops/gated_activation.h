// Gated activations: one number of each gate and up, side by side in a row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::ops {

// SwiGLU: silu(gate) · up. GeGLU: gelu(gate) · up, with GELU's approximation 0.5·g·(1 + tanh(√(2/π)·(g +
// 0.044715·g³))) (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016). gpt-oss': (up + 1) · gate ·
// σ(slope · gate), gate cut at `limit` from above and up at ±limit.
enum class GatedRule : uint8_t { kSwiglu, kGeglu, kClampedSwiglu };
struct GatedActivation {
  GatedRule rule = GatedRule::kSwiglu;
  double slope = 1.702, limit = 7;  // for kClampedSwiglu
};

// gate_up_TG holds gate in columns [0, F) and up in [F, 2F), G = 2F. Result [T, F].
at::Tensor gated_activation(const GatedActivation& activation, const at::Tensor& gate_up_TG);

// Overwrites gate_up_TG with its gradient and returns the forward's result again, the input of the next
// matrix's weight gradient, so that the forward need not save it.
at::Tensor gated_activation_backward(const GatedActivation& activation, const at::Tensor& da_TF,
                                     const at::Tensor& gate_up_TG);

namespace aten {
at::Tensor gated_activation(const GatedActivation& activation, const at::Tensor& gate_up_TG);
at::Tensor gated_activation_backward(const GatedActivation& activation, const at::Tensor& da_TF,
                                     const at::Tensor& gate_up_TG);
}  // namespace aten

}  // namespace sluice::ops
