#include "layers/gated.h"

#include "base/error.h"
#include "ops/clamped_swiglu.h"
#include "ops/geglu.h"
#include "ops/swiglu.h"

namespace sluice::layers {
namespace {

ops::ClampedSwiglu clamped(const model::Gate& gate) { return {.alpha = gate.slope, .limit = gate.limit}; }

}  // namespace

at::Tensor gated(const model::Gate& gate, const at::Tensor& gate_up_TG) {
  switch (gate.activation) {
    case model::Activation::kSilu: return ops::swiglu(gate_up_TG);
    case model::Activation::kGeluTanh: return ops::geglu(gate_up_TG);
    case model::Activation::kClampedSilu: return ops::clamped_swiglu(gate_up_TG, clamped(gate));
  }
  SLUICE_ASSERT(false, "an activation that nobody computes");
}

at::Tensor gated_backward(const model::Gate& gate, const at::Tensor& da_TF, const at::Tensor& gate_up_TG) {
  switch (gate.activation) {
    case model::Activation::kSilu: return ops::swiglu_backward(da_TF, gate_up_TG);
    case model::Activation::kGeluTanh: return ops::geglu_backward(da_TF, gate_up_TG);
    case model::Activation::kClampedSilu:
      return ops::clamped_swiglu_backward(da_TF, gate_up_TG, clamped(gate));
  }
  SLUICE_ASSERT(false, "an activation that nobody computes");
}

}  // namespace sluice::layers
