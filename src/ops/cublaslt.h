// Products of 16-bit matrices on GPUs by cuBLASLt, for what ATen has no product of in one pass: a result of
// its own behind an addend that stays, and sums in float. Internal to src/ops; built with CUDA only.
//
// None of its epilogues fits a layer here: SwiGLU takes two columns of the result at once, layers have no
// biases, and a norm needs whole rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops::cublaslt {

// result = x·y + base, summed in float and rounded once. x [T, A] and y [A, B] are bfloat16 and may be
// transposed views, base and result [T, B] are both bfloat16 or both float, and may be the same. False, with
// nothing done, where it does not take them, or where its result for a small case was not ATen's on this GPU
// (the first call compares them, and waits for the GPU).
bool add_product(const at::Tensor& base, const at::Tensor& x, const at::Tensor& y, const at::Tensor& result);

}  // namespace sluice::ops::cublaslt
