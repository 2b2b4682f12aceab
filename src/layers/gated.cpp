#include "layers/gated.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include <optional>

#include "base/error.h"
#include "ops/gated_activation.h"

namespace sluice::layers {
namespace {

// The kernel of both factors; none: the activation has only one of its own.
std::optional<ops::GatedActivation> fused(const model::Gate& gate) {
  switch (gate.activation) {
    case model::Activation::kSilu: return ops::GatedActivation{ops::GatedRule::kSwiglu};
    case model::Activation::kGeluTanh: return ops::GatedActivation{ops::GatedRule::kGeglu};
    case model::Activation::kClampedSilu:
      return ops::GatedActivation{ops::GatedRule::kClampedSwiglu, gate.slope, gate.limit};
    case model::Activation::kXielu:
    case model::Activation::kGelu:
    case model::Activation::kTanh:
    case model::Activation::kSquaredRelu: break;
  }
  return std::nullopt;
}

[[noreturn]] void refuse() { SLUICE_ASSERT(false, "an activation that nobody computes"); }

at::Tensor squared_relu(const at::Tensor& x) { return at::relu(x).square_(); }
at::Tensor squared_relu_backward(const at::Tensor& dy, const at::Tensor& x) {
  return at::relu(x).mul_(2).mul_(dy);
}

}  // namespace

at::Tensor act(model::Activation activation, const at::Tensor& x) {
  switch (activation) {
    case model::Activation::kSilu: return at::silu(x);
    case model::Activation::kGeluTanh: return at::gelu(x, "tanh");
    case model::Activation::kGelu: return at::gelu(x);
    case model::Activation::kSquaredRelu: return squared_relu(x);
    case model::Activation::kTanh: return at::tanh(x);
    case model::Activation::kClampedSilu:
    case model::Activation::kXielu: break;
  }
  refuse();
}

at::Tensor act_backward(model::Activation activation, const at::Tensor& dy, const at::Tensor& x) {
  switch (activation) {
    case model::Activation::kSilu: return at::silu_backward(dy, x);
    case model::Activation::kGeluTanh: return at::gelu_backward(dy, x, "tanh");
    case model::Activation::kGelu: return at::gelu_backward(dy, x);
    case model::Activation::kSquaredRelu: return squared_relu_backward(dy, x);
    case model::Activation::kTanh: return at::tanh_backward(dy, at::tanh(x));
    case model::Activation::kClampedSilu:
    case model::Activation::kXielu: break;
  }
  refuse();
}

namespace {

at::Tensor ungated_backward(const model::Gate& gate, const at::Tensor& da_TF, const at::Tensor& up_TF) {
  at::Tensor a_TF = act(gate.activation, up_TF);
  up_TF.copy_(act_backward(gate.activation, da_TF, up_TF));
  return a_TF;
}

}  // namespace

at::Tensor activated(const model::Gate& gate, const at::Tensor& gate_up_TG) {
  if (!gate.gated) return act(gate.activation, gate_up_TG);
  if (const auto kernel = fused(gate)) return ops::gated_activation(*kernel, gate_up_TG);
  const int64_t width = gate_up_TG.size(1) / 2;
  return act(gate.activation, gate_up_TG.narrow(1, 0, width)).mul_(gate_up_TG.narrow(1, width, width));
}

at::Tensor activated_backward(const model::Gate& gate, const at::Tensor& da_TF,
                              const at::Tensor& gate_up_TG) {
  if (!gate.gated) return ungated_backward(gate, da_TF, gate_up_TG);
  if (const auto kernel = fused(gate)) return ops::gated_activation_backward(*kernel, da_TF, gate_up_TG);
  const int64_t width = da_TF.size(1);
  const at::Tensor gate_TF = gate_up_TG.narrow(1, 0, width), up_TF = gate_up_TG.narrow(1, width, width);
  const at::Tensor act_TF = act(gate.activation, gate_TF);
  at::Tensor a_TF = act_TF * up_TF;
  gate_TF.copy_(act_backward(gate.activation, da_TF * up_TF, gate_TF));
  up_TF.copy_(da_TF * act_TF);
  return a_TF;
}

}  // namespace sluice::layers
