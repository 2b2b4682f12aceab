#include "layers/gated.h"

#include "base/error.h"
#include "ops/clamped_swiglu.h"
#include "ops/geglu.h"
#include "ops/swiglu.h"

namespace sluice::layers {
namespace {

ops::ClampedSwiglu clamped(const LayerContext& context) {
  return {.alpha = context.shape.gate_slope, .limit = context.shape.gate_limit};
}

}  // namespace

at::Tensor gated(const LayerContext& context, const at::Tensor& gate_up_TG) {
  switch (context.shape.activation) {
    case model::Activation::kSilu: return ops::swiglu(gate_up_TG);
    case model::Activation::kGeluTanh: return ops::geglu(gate_up_TG);
    case model::Activation::kClampedSilu: return ops::clamped_swiglu(gate_up_TG, clamped(context));
  }
  SLUICE_ASSERT(false, "an activation that nobody computes");
}

at::Tensor gated_backward(const LayerContext& context, const at::Tensor& da_TF,
                          const at::Tensor& gate_up_TG) {
  switch (context.shape.activation) {
    case model::Activation::kSilu: return ops::swiglu_backward(da_TF, gate_up_TG);
    case model::Activation::kGeluTanh: return ops::geglu_backward(da_TF, gate_up_TG);
    case model::Activation::kClampedSilu:
      return ops::clamped_swiglu_backward(da_TF, gate_up_TG, clamped(context));
  }
  SLUICE_ASSERT(false, "an activation that nobody computes");
}

}  // namespace sluice::layers
