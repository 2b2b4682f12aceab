// Products of 8-bit floats (E4M3). An operand is coded with one factor for each row that is summed over: the
// row's largest magnitude over 448. A matrix that is summed over its columns in one product and over its rows
// in another has two codes.
//
// On GPUs coding takes one kernel, and a product one of libtorch's (`_scaled_mm` with factors of rows), which
// returns bfloat16. GPUs without such products, or of which a small case differed, and right operands whose
// rows are no multiple of 16 multiply codes as bfloat16, which represents them exactly. CPUs multiply floats.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace sluice::ops {

// P: K rounded up to a multiple of 16, filled with zeros.
struct Float8Rows {
  at::Tensor code_RP;    // E4M3
  at::Tensor factor_R1;  // float; NaN if a number of the row is not finite

  bool defined() const { return code_RP.defined(); }
};
// Codes of rows; x [R, K] of any float type, and may be a transposed view.
Float8Rows float8_rows(const at::Tensor& x_RK);
// The same for the rows of xᵀ.
Float8Rows float8_columns(const at::Tensor& x_RK);

// left·rightᵀ, [M, N] in `dtype`. REQUIRES: both operands were coded along the same dimension.
at::Tensor float8_product(const Float8Rows& left_MK, const Float8Rows& right_NK, at::ScalarType dtype);
// sum += left·rightᵀ; on GPUs the product is rounded to bfloat16 before it is added.
void add_float8_product(const at::Tensor& sum_MN, const Float8Rows& left_MK, const Float8Rows& right_NK);

// Codes of a weight in both directions, each made when it is first asked for. The weight must not change from
// then on. Not thread-safe.
class Float8Weight {
 public:
  const Float8Rows& rows(const at::Tensor& w_AB) {
    if (!rows_.defined()) rows_ = float8_rows(w_AB);
    return rows_;
  }
  const Float8Rows& columns(const at::Tensor& w_AB) {
    if (!columns_.defined()) columns_ = float8_columns(w_AB);
    return columns_;
  }

 private:
  Float8Rows rows_, columns_;
};

}  // namespace sluice::ops
