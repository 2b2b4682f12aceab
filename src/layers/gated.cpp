#include "layers/gated.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "base/error.h"
#include "ops/clamped_swiglu.h"
#include "ops/geglu.h"
#include "ops/swiglu.h"

namespace sluice::layers {
namespace {

ops::ClampedSwiglu clamped(const model::Gate& gate) { return {.alpha = gate.slope, .limit = gate.limit}; }

[[noreturn]] void refuse() { SLUICE_ASSERT(false, "an activation that nobody computes"); }

at::Tensor squared_relu(const at::Tensor& x) { return at::relu(x).square_(); }
at::Tensor squared_relu_backward(const at::Tensor& dy, const at::Tensor& x) {
  return at::relu(x).mul_(2).mul_(dy);
}

at::Tensor ungated(const model::Gate& gate, const at::Tensor& up_TF) {
  switch (gate.activation) {
    case model::Activation::kSilu: return at::silu(up_TF);
    case model::Activation::kGeluTanh: return at::gelu(up_TF, "tanh");
    case model::Activation::kSquaredRelu: return squared_relu(up_TF);
    case model::Activation::kClampedSilu: break;
  }
  refuse();
}

at::Tensor ungated_backward(const model::Gate& gate, const at::Tensor& da_TF, const at::Tensor& up_TF) {
  at::Tensor a_TF = ungated(gate, up_TF);
  switch (gate.activation) {
    case model::Activation::kSilu: up_TF.copy_(at::silu_backward(da_TF, up_TF)); break;
    case model::Activation::kGeluTanh: up_TF.copy_(at::gelu_backward(da_TF, up_TF, "tanh")); break;
    case model::Activation::kSquaredRelu: up_TF.copy_(squared_relu_backward(da_TF, up_TF)); break;
    case model::Activation::kClampedSilu: refuse();
  }
  return a_TF;
}

}  // namespace

at::Tensor activated(const model::Gate& gate, const at::Tensor& gate_up_TG) {
  if (!gate.gated) return ungated(gate, gate_up_TG);
  switch (gate.activation) {
    case model::Activation::kSilu: return ops::swiglu(gate_up_TG);
    case model::Activation::kGeluTanh: return ops::geglu(gate_up_TG);
    case model::Activation::kClampedSilu: return ops::clamped_swiglu(gate_up_TG, clamped(gate));
    case model::Activation::kSquaredRelu: break;
  }
  const int64_t width = gate_up_TG.size(1) / 2;
  return squared_relu(gate_up_TG.narrow(1, 0, width)).mul_(gate_up_TG.narrow(1, width, width));
}

at::Tensor activated_backward(const model::Gate& gate, const at::Tensor& da_TF,
                              const at::Tensor& gate_up_TG) {
  if (!gate.gated) return ungated_backward(gate, da_TF, gate_up_TG);
  switch (gate.activation) {
    case model::Activation::kSilu: return ops::swiglu_backward(da_TF, gate_up_TG);
    case model::Activation::kGeluTanh: return ops::geglu_backward(da_TF, gate_up_TG);
    case model::Activation::kClampedSilu:
      return ops::clamped_swiglu_backward(da_TF, gate_up_TG, clamped(gate));
    case model::Activation::kSquaredRelu: break;
  }
  const int64_t width = da_TF.size(1);
  const at::Tensor gate_TF = gate_up_TG.narrow(1, 0, width), up_TF = gate_up_TG.narrow(1, width, width);
  const at::Tensor act_TF = squared_relu(gate_TF);
  at::Tensor a_TF = act_TF * up_TF;
  gate_TF.copy_(squared_relu_backward(da_TF * up_TF, gate_TF));
  up_TF.copy_(da_TF * act_TF);
  return a_TF;
}

}  // namespace sluice::layers
