#include "layers/product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/linear.h"
#include "ops/low_precision_gemm.h"

namespace sluice::layers {
namespace {

// The columns of x that are multiplied with an adapter's rows.
at::Tensor met(const Adapter& adapter, const at::Tensor& x_TA) {
  return x_TA.narrow(1, adapter.first_row, adapter.left_NK.size(0));
}

void choose(const Matrix& matrix, at::Tensor& narrow_TK) {
  if (matrix.low_precision.rows != nullptr) matrix.low_precision.rows->choose(narrow_TK);
}

void add_adapted(at::Tensor& y_TB, const at::Tensor& x_TA, const Matrix& matrix) {
  for (const Adapter& adapter : matrix.adapters) {
    at::Tensor narrow_TK = ops::times(met(adapter, x_TA), adapter.left_NK);
    choose(matrix, narrow_TK);
    y_TB.addmm_(narrow_TK, adapter.right_KB, 1, adapter.factor);
  }
}

double squares(const at::Tensor& x) { return x.to(at::kFloat).square().sum().item<double>(); }

bool is_narrow(const LowPrecision& narrowing) { return narrowing.format != base::GemmFormat::kAsComputed; }

// left·rightᵀ; `exact` computes it in the run's own type.
template <typename Exact>
at::Tensor product(const LowPrecision& narrowing, const at::Tensor& left_MK, const at::Tensor& right_NK,
                   Exact exact) {
  if (narrowing.errors != nullptr) {
    using enum GemmErrors::Figure;
    const at::Tensor wide = exact();
    const at::Tensor rounded = ops::low_precision_gemm(narrowing.errors->format, left_MK, right_NK);
    narrowing.errors->add(narrowing.layer, narrowing.errors->backward ? kInputGradient : kForward,
                          rounded - wide, wide);
  }
  return is_narrow(narrowing) ? ops::low_precision_gemm(narrowing.format, left_MK, right_NK) : exact();
}

void add_weight_gradient(const LowPrecision& narrowing, const at::Tensor& gradient_AB, const at::Tensor& a_TA,
                         const at::Tensor& b_TB) {
  if (narrowing.errors != nullptr) {
    using enum GemmErrors::Figure;
    const at::Tensor exact_AB = at::zeros_like(gradient_AB);
    ops::accumulate_weight_gradient(exact_AB, a_TA, b_TB);
    const at::Tensor rounded_AB = ops::low_precision_gemm(narrowing.errors->format, a_TA.t(), b_TB.t());
    narrowing.errors->add(narrowing.layer, kWeightGradient, rounded_AB - exact_AB, exact_AB);
    narrowing.errors->add(narrowing.layer, kGradientSquares, squares(exact_AB));
  }
  if (is_narrow(narrowing)) {
    ops::add_low_precision_gemm(narrowing.format, gradient_AB, a_TA.t(), b_TB.t());
  } else {
    ops::accumulate_weight_gradient(gradient_AB, a_TA, b_TB);
  }
}

}  // namespace

void AdapterMask::choose(at::Tensor& narrow_XK) const {
  if (!chosen_TK.defined()) return;
  const at::Tensor& chosen_XK = narrow_XK.size(0) == chosen_TK.size(0) ? chosen_TK : chosen_SK;
  SLUICE_ASSERT(chosen_XK.defined() && chosen_XK.size(0) == narrow_XK.size(0),
                base::text("nobody chose the adapters of ", narrow_XK.size(0), " rows of a step"));
  narrow_XK.mul_(chosen_XK);
}

void GemmErrors::add(int64_t layer, Figure figure, double value) {
  if (by_layer.size() <= static_cast<size_t>(layer)) by_layer.resize(static_cast<size_t>(layer) + 1);
  Sum& sum = by_layer[static_cast<size_t>(layer)][static_cast<size_t>(figure)];
  sum.sum += value;
  ++sum.count;
}

void GemmErrors::add(int64_t layer, Figure figure, const at::Tensor& part, const at::Tensor& whole) {
  const double own = squares(whole);
  add(layer, figure, own > 0 ? squares(part) / own : 0);
}

bool Matrix::wanted() const {
  return defined() || std::ranges::any_of(adapters, [](const Adapter& adapter) {
           return adapter.left_NK.defined() || adapter.right_KB.defined();
         });
}

at::Tensor times(const at::Tensor& x_TA, const Matrix& matrix) {
  at::Tensor y_TB =
      product(matrix.low_precision, x_TA, matrix.w_AB.t(), [&] { return ops::times(x_TA, matrix.w_AB); });
  add_adapted(y_TB, x_TA, matrix);
  return y_TB;
}

at::Tensor times_transposed(const at::Tensor& x_TB, const Matrix& matrix) {
  const at::Tensor y_TA = product(matrix.low_precision, x_TB, matrix.w_AB,
                                  [&] { return ops::times_transposed(x_TB, matrix.w_AB); });
  for (const Adapter& adapter : matrix.adapters) {
    at::Tensor narrow_TK = ops::times_transposed(x_TB, adapter.right_KB);
    choose(matrix, narrow_TK);
    met(adapter, y_TA).addmm_(narrow_TK, adapter.left_NK.t(), 1, adapter.factor);
  }
  return y_TA;
}

at::Tensor add_times(const at::Tensor& base_TB, const at::Tensor& x_TA, const Matrix& matrix) {
  const LowPrecision& narrowing = matrix.low_precision;
  if (is_narrow(narrowing) || narrowing.errors != nullptr) return base_TB + times(x_TA, matrix);
  at::Tensor y_TB = ops::add_times(base_TB, x_TA, matrix.w_AB);
  add_adapted(y_TB, x_TA, matrix);
  return y_TB;
}

std::vector<AdapterRows> adapter_rows(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                                      const at::Tensor& b_SB, const TensorParallel& parallel) {
  std::vector<AdapterRows> narrow(gradient.adapters.size());
  for (size_t i = 0; i < narrow.size(); ++i) {
    const Adapter& adapter = matrix.adapters[i];
    if (gradient.adapters[i].right_KB.defined()) {
      narrow[i].a_TK = ops::times(met(adapter, a_TA), adapter.left_NK).mul_(adapter.factor);
    }
    if (gradient.adapters[i].left_NK.defined()) {
      narrow[i].b_TK =
          parallel.all_gather_rows(ops::times_transposed(b_SB, adapter.right_KB).mul_(adapter.factor));
    }
  }
  return narrow;
}

std::vector<AdapterRows> adapter_rows(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                                      const at::Tensor& b_TB) {
  return adapter_rows(matrix, gradient, a_TA, b_TB, {});
}

void accumulate_gradient(const Matrix& gradient, const std::vector<AdapterRows>& narrow,
                         const at::Tensor& a_TA, const at::Tensor& b_TB) {
  if (gradient.defined()) add_weight_gradient(gradient.low_precision, gradient.w_AB, a_TA, b_TB);
  for (size_t i = 0; i < gradient.adapters.size(); ++i) {
    const auto& [left_NK, right_KB, first_row, factor] = gradient.adapters[i];
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
