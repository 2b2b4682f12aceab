#include "layers/product.h"

#include <ATen/TensorOperators.h>

#include <algorithm>

#include "ops/linear.h"

namespace sluice::layers {
namespace {

// The columns of x that meet an adapter's rows.
at::Tensor met(const Adapter& adapter, const at::Tensor& x_TA) {
  return x_TA.narrow(1, adapter.first_row, adapter.left_NK.size(0));
}

void add_adapted(at::Tensor& y_TB, const at::Tensor& x_TA, const Matrix& matrix) {
  for (const Adapter& adapter : matrix.adapters) {
    y_TB.addmm_(ops::times(met(adapter, x_TA), adapter.left_NK), adapter.right_KB, 1, matrix.factor);
  }
}

}  // namespace

bool Matrix::wanted() const {
  return defined() || std::ranges::any_of(adapters, [](const Adapter& adapter) {
           return adapter.left_NK.defined() || adapter.right_KB.defined();
         });
}

at::Tensor times(const at::Tensor& x_TA, const Matrix& matrix) {
  at::Tensor y_TB = ops::times(x_TA, matrix.w_AB);
  add_adapted(y_TB, x_TA, matrix);
  return y_TB;
}

at::Tensor times_transposed(const at::Tensor& x_TB, const Matrix& matrix) {
  const at::Tensor y_TA = ops::times_transposed(x_TB, matrix.w_AB);
  for (const Adapter& adapter : matrix.adapters) {
    met(adapter, y_TA)
        .addmm_(ops::times_transposed(x_TB, adapter.right_KB), adapter.left_NK.t(), 1, matrix.factor);
  }
  return y_TA;
}

at::Tensor add_times(const at::Tensor& base_TB, const at::Tensor& x_TA, const Matrix& matrix) {
  at::Tensor y_TB = ops::add_times(base_TB, x_TA, matrix.w_AB);
  add_adapted(y_TB, x_TA, matrix);
  return y_TB;
}

std::vector<NarrowRows> narrow_rows(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                                    const at::Tensor& b_SB, const TensorParallel& parallel) {
  std::vector<NarrowRows> narrow(gradient.adapters.size());
  for (size_t i = 0; i < narrow.size(); ++i) {
    const Adapter& adapter = matrix.adapters[i];
    if (gradient.adapters[i].right_KB.defined()) {
      narrow[i].a_TK = ops::times(met(adapter, a_TA), adapter.left_NK).mul_(matrix.factor);
    }
    if (gradient.adapters[i].left_NK.defined()) {
      narrow[i].b_TK =
          parallel.all_gather_rows(ops::times_transposed(b_SB, adapter.right_KB).mul_(matrix.factor));
    }
  }
  return narrow;
}

std::vector<NarrowRows> narrow_rows(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                                    const at::Tensor& b_TB) {
  return narrow_rows(matrix, gradient, a_TA, b_TB, {});
}

void accumulate_gradient(const Matrix& gradient, const std::vector<NarrowRows>& narrow,
                         const at::Tensor& a_TA, const at::Tensor& b_TB) {
  if (gradient.defined()) ops::accumulate_weight_gradient(gradient.w_AB, a_TA, b_TB);
  for (size_t i = 0; i < gradient.adapters.size(); ++i) {
    const auto& [left_NK, right_KB, first_row] = gradient.adapters[i];
    if (left_NK.defined()) {
      const at::Tensor a_TN = a_TA.narrow(1, first_row, left_NK.size(0));
      ops::accumulate_weight_gradient(left_NK, a_TN, narrow[i].b_TK);
    }
    if (right_KB.defined()) ops::accumulate_weight_gradient(right_KB, narrow[i].a_TK, b_TB);
  }
}

void accumulate_gradient(const at::Tensor& gradient_AB, const at::Tensor& a_TA, const at::Tensor& b_TB) {
  if (gradient_AB.defined())
    ops::accumulate_weight_gradient(gradient_AB, a_TA.contiguous(), b_TB.contiguous());
}

}  // namespace sluice::layers
