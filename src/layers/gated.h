// The activation of an MLP, applied to its gate, or to up in an MLP without a gate.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"

namespace sluice::layers {

// act(x), and the gradient of x. Not for activations that exist only with a gate.
at::Tensor act(model::Activation activation, const at::Tensor& x);
at::Tensor act_backward(model::Activation activation, const at::Tensor& dy, const at::Tensor& x);

// act(gate) · up for rows with gate in columns [0, F) and up in [F, 2F); without a gate act(up).
at::Tensor activated(const model::Gate& gate, const at::Tensor& gate_up_TG);
// Overwrites gate_up_TG with its gradient and returns the forward's result again.
at::Tensor activated_backward(const model::Gate& gate, const at::Tensor& da_TF, const at::Tensor& gate_up_TG);

}  // namespace sluice::layers
