// A matrix product in BLAS terms: matrices are column-major. Internal to src/ops.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace sluice::ops {

// D[m, n] = op(A)[m, k]·op(B)[k, n] + C[m, n], column-major; ld: elements between columns.
struct GemmForm {
  bool transposes_a = false;
  bool transposes_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
  int64_t ldd = 0;

  auto operator<=>(const GemmForm&) const = default;
};

// The form of result = x·y + base. A row-major matrix is the transpose of a column-major one, so the product
// is resultᵀ = yᵀ·xᵀ + baseᵀ: A is y's memory and B is x's. x and y may be transposed views. Nullopt if a
// matrix has no dense dimension or is empty.
inline std::optional<GemmForm> gemm_form(const at::Tensor& x, const at::Tensor& y, const at::Tensor& base,
                                         const at::Tensor& result) {
  const auto row_major = [](const at::Tensor& matrix) {
    return matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1);
  };
  const auto column_major = [](const at::Tensor& matrix) {
    return matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0);
  };
  for (const at::Tensor& operand : {x, y}) {
    if (operand.numel() == 0 || (!row_major(operand) && !column_major(operand))) return std::nullopt;
  }
  if (!row_major(base) || !row_major(result)) return std::nullopt;
  const bool x_is_plain = row_major(x), y_is_plain = row_major(y);
  return GemmForm{.transposes_a = !y_is_plain,
                  .transposes_b = !x_is_plain,
                  .m = result.size(1),
                  .n = result.size(0),
                  .k = x.size(1),
                  .lda = y.stride(y_is_plain ? 0 : 1),
                  .ldb = x.stride(x_is_plain ? 0 : 1),
                  .ldc = base.stride(0),
                  .ldd = result.stride(0)};
}

}  // namespace sluice::ops
