// Products of 16-bit matrices on GPUs by cuBLASLt, for cases that ATen does not do in one pass: a separate
// result that leaves the addend unchanged, and sums in float. Internal to src/ops; built with CUDA only.
//
// None of its epilogues fits a layer here: SwiGLU takes two columns of the result at once, layers have no
// biases, and a norm needs whole rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops::cublaslt {

// result = x·y + base, summed in float and rounded once. Tensors x [T, A] and y [A, B] are bfloat16 and may
// be transposed views. Tensors base and result [T, B] are both bfloat16 or both float, and may be the same.
// False, with nothing done, if these inputs are not taken, or if the result for a small case differed from
// ATen's on this GPU. The first call compares them and waits for the GPU.
bool add_product(const at::Tensor& base, const at::Tensor& x, const at::Tensor& y, const at::Tensor& result);

}  // namespace sluice::ops::cublaslt
