// What the gate of a gated MLP passes through, as the shape says.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"

namespace sluice::layers {

// act(gate) · up, of rows with gate in columns [0, F) and up in [F, 2F).
at::Tensor gated(const LayerContext& context, const at::Tensor& gate_up_TG);
// Overwrites gate_up_TG with its gradient and returns the forward's result again.
at::Tensor gated_backward(const LayerContext& context, const at::Tensor& da_TF, const at::Tensor& gate_up_TG);

}  // namespace sluice::layers
