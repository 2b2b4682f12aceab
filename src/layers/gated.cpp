#include "layers/gated.h"

#include "ops/geglu.h"
#include "ops/swiglu.h"

namespace sluice::layers {

at::Tensor gated(const LayerContext& context, const at::Tensor& gate_up_TG) {
  const bool silu = context.shape.activation == model::Activation::kSilu;
  return silu ? ops::swiglu(gate_up_TG) : ops::geglu(gate_up_TG);
}

at::Tensor gated_backward(const LayerContext& context, const at::Tensor& da_TF,
                          const at::Tensor& gate_up_TG) {
  const bool silu = context.shape.activation == model::Activation::kSilu;
  return silu ? ops::swiglu_backward(da_TF, gate_up_TG) : ops::geglu_backward(da_TF, gate_up_TG);
}

}  // namespace sluice::layers
