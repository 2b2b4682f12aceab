// gpt-oss' gated activation: (up + 1) · gate · σ(alpha · gate), gate cut at `limit` from above and up at
// ±limit. As ops/swiglu.h; on GPUs from ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

struct ClampedSwiglu {
  double alpha = 1.702;
  double limit = 7;
};

at::Tensor clamped_swiglu(const at::Tensor& gate_up_TG, const ClampedSwiglu& options);
at::Tensor clamped_swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG,
                                   const ClampedSwiglu& options);

namespace aten {
at::Tensor clamped_swiglu(const at::Tensor& gate_up_TG, const ClampedSwiglu& options);
at::Tensor clamped_swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG,
                                   const ClampedSwiglu& options);
}  // namespace aten

}  // namespace sluice::ops
