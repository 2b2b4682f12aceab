// Matrix products with operands rounded to fewer bits, and sums in more bits.
//
// Each row along the summed dimension (of x, and of w as it lies or transposed) has one factor: its largest
// magnitude over the format's maximum, 127 for 8-bit integers, 448 for E4M3 (ops/float8.h). Integers use
// stochastic rounding, so that products are unbiased. Its random number is a hash of the value and its place,
// so equal operands give equal products. A row that is not finite makes all products with it NaN. Without
// AVX2, and for shapes that a GPU's units don't take, rounded operands are multiplied as floats, which
// changes nothing but time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "base/gemm_format.h"

namespace sluice::ops {

// Whether the device computes such products natively and not as floats: a GPU without 8-bit float units does
// not. CPUs, on which formats are tried out, count as native.
bool multiplies(base::GemmFormat format, c10::Device device);

// left·rightᵀ: left [M, K], right [N, K], either may be a transposed view; returns [M, N] in left's type.
// REQUIRES: a narrow format.
at::Tensor low_precision_gemm(base::GemmFormat format, const at::Tensor& left_MK, const at::Tensor& right_NK);
// sum += left·rightᵀ, in sum's type.
void add_low_precision_gemm(base::GemmFormat format, const at::Tensor& sum_MN, const at::Tensor& left_MK,
                            const at::Tensor& right_NK);

// Rows as 8-bit integers.
struct RowCodes {
  at::Tensor code_RK;   // float, integral values
  at::Tensor factor_R;  // float
};
// By ATen's operators, on any device: the same codes as the CPU's own kernel.
RowCodes row_codes(const at::Tensor& x_RK);

}  // namespace sluice::ops
