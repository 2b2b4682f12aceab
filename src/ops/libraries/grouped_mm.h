// Products of groups of rows on GPUs by libtorch's CUTLASS kernels, which read the groups' sizes on the
// device. Internal to src/ops; built with CUDA only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::ops::grouped_mm {

// Whether at::_grouped_mm multiplies these without waiting: x [V, A] with w [G, A, B], or two [V, *] for a
// gradient. Only bfloat16 on sm_90 and sm_10x, rows and addresses of whole 16 bytes. False as well if a small
// case differed from products group by group on this GPU. The first call compares them and waits for the GPU.
bool takes(const at::Tensor& x, const at::Tensor& w, int64_t groups);

}  // namespace sluice::ops::grouped_mm
