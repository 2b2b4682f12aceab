// Results of RMSNorm (ops/norm.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

// Statistics are float (double for double); T rows of width H.
struct RmsNorm {
  at::Tensor y_TH;           // x · inverse_rms · (offset + weight), in x's type
  at::Tensor inverse_rms_T;  // 1 / sqrt(mean(x²) + eps)
};

struct RmsNormGradient {
  at::Tensor dx_TH;
  at::Tensor y_TH;  // the forward's result again, as the input of weight gradients
};

}  // namespace sluice::ops
