// Products of 8-bit floats on GPUs by libtorch, with a factor for each row of either operand. Internal to
// src/ops; built with CUDA only.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops::scaled_mm {

// Whether at::_scaled_mm multiplies left [M, P] by rightᵀ, right [N, P], into bfloat16: N and P are multiples
// of 16. False as well if a small case differed from the same codes multiplied as bfloat16
// on this GPU. The first call compares them and waits for the GPU. REQUIRES: gpu::supports_float8().
bool takes(const at::Tensor& left_MP, const at::Tensor& right_NP);

}  // namespace sluice::ops::scaled_mm
