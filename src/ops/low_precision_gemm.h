// Matrix products of operands that are rounded to fewer bits first, and summed in more.
//
// Each row that is summed over (of x, and of w as it lies or transposed) has one factor, its largest
// magnitude over the format's: 127 of whole numbers of 8 bits, 448 of E4M3. Whole numbers are rounded up or
// down by chance, in proportion to how near they are, so that no product is off in the mean; what decides is
// a hash of the number and its place, so that the same operands give the same product. Rows that are not
// finite make what they meet NaN. Without AVX2, and in shapes that a GPU's units don't
// take, rounded operands are multiplied as floats, which changes nothing but time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "base/gemm_format.h"

namespace sluice::ops {

// Whether the device computes such products by itself, not as floats: a GPU without units for floats of 8
// bits does not. CPUs, on which formats are tried, count as if they did.
bool multiplies(base::GemmFormat format, c10::Device device);

// left·rightᵀ: left [M, K], right [N, K], either as a transposed view, to [M, N] in left's type. REQUIRES: a
// narrow format.
at::Tensor low_precision_gemm(base::GemmFormat format, const at::Tensor& left_MK, const at::Tensor& right_NK);
// sum += left·rightᵀ, in sum's type.
void add_low_precision_gemm(base::GemmFormat format, const at::Tensor& sum_MN, const at::Tensor& left_MK,
                            const at::Tensor& right_NK);

// Rows as whole numbers of 8 bits.
struct RowCodes {
  at::Tensor code_RK;   // float, whole
  at::Tensor factor_R;  // float
};
// By ATen's operators, on any device: what the CPU's own kernel computes.
RowCodes row_codes(const at::Tensor& x_RK);

}  // namespace sluice::ops
