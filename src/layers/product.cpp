#include "layers/product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
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

// The gradient of a result before DoRA's scale.
at::Tensor scaled(const at::Tensor& d_TO, const Matrix& matrix) {
  const at::Tensor scale_O = scale_of_outputs(matrix);
  return scale_O.defined() ? d_TO * scale_O : d_TO;
}

// DoRA's scale of a result. Rows that do not use the adapter keep theirs; there is one adapter then, and all
// columns of the mask are its own.
void apply_scale(const Matrix& matrix, at::Tensor& y_TO) {
  if (matrix.scales == nullptr) return;
  const at::Tensor scale_O = scale_of_outputs(matrix);
  const AdapterMask* const rows = matrix.low_precision.rows;
  const at::Tensor chosen_TK = rows == nullptr ? at::Tensor() : rows->chosen(y_TO.size(0));
  y_TO.mul_(chosen_TK.defined() ? (scale_O - 1).mul(chosen_TK.narrow(1, 0, 1)).add_(1) : scale_O);
}

double squares(const at::Tensor& x) { return x.to(at::kFloat).square().sum().item<double>(); }

bool is_narrow(const LowPrecision& narrowing) { return narrowing.format != base::GemmFormat::kAsComputed; }

// The right operand of left·rightᵀ.
enum class Right : uint8_t { kMatrix, kTransposed };

at::Tensor right_of(const Matrix& matrix, Right right) {
  return right == Right::kMatrix ? matrix.w_AB : matrix.w_AB.t();
}

// left·rightᵀ of rounded operands.
at::Tensor rounded_product(const Matrix& matrix, const at::Tensor& left_MK, Right right) {
  const base::GemmFormat format = matrix.low_precision.format;
  if (format != base::GemmFormat::kFloat8 || matrix.codes == nullptr)
    return ops::low_precision_gemm(format, left_MK, right_of(matrix, right));
  const ops::Float8Rows& codes =
      right == Right::kMatrix ? matrix.codes->rows(matrix.w_AB) : matrix.codes->columns(matrix.w_AB);
  return ops::float8_product(ops::float8_rows(left_MK), codes, left_MK.scalar_type());
}

// left·rightᵀ; `exact` computes it in the run's own type.
template <typename Exact>
at::Tensor product(const Matrix& matrix, const at::Tensor& left_MK, Right right, Exact exact) {
  const LowPrecision& narrowing = matrix.low_precision;
  if (narrowing.errors != nullptr) {
    using enum GemmErrors::Figure;
    const at::Tensor wide = exact();
    const at::Tensor rounded =
        ops::low_precision_gemm(narrowing.errors->format, left_MK, right_of(matrix, right));
    narrowing.errors->add(narrowing.layer, narrowing.errors->backward ? kInputGradient : kForward,
                          rounded - wide, wide);
  }
  return is_narrow(narrowing) ? rounded_product(matrix, left_MK, right) : exact();
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

// gradient += aᵀ·b · scale.
void add_scaled_product(const at::Tensor& gradient_NM, const at::Tensor& a_TN, const at::Tensor& b_TM,
                        const at::Tensor& scale) {
  if (!scale.defined()) return ops::accumulate_weight_gradient(gradient_NM, a_TN, b_TM);
  const at::Tensor product_NM = at::zeros_like(gradient_NM);
  ops::accumulate_weight_gradient(product_NM, a_TN, b_TM);
  gradient_NM.addcmul_(product_NM, scale.to(gradient_NM.scalar_type()));
}

// The unscaled result of an adapter's outputs: its rows of w, or all columns if outputs are last.
at::Tensor unscaled(const Matrix& matrix, const Adapter& adapter, const at::Tensor& x_TX) {
  const LowPrecision& narrowing = matrix.low_precision;
  const at::Tensor w_NB = matrix.w_AB.narrow(0, adapter.first_row, adapter.left_NK.size(0));
  const bool is_coded = is_narrow(narrowing);
  if (matrix.outputs_last) {
    at::Tensor z_TB =
        is_coded ? ops::low_precision_gemm(narrowing.format, x_TX, w_NB.t()) : ops::times(x_TX, w_NB);
    z_TB.addmm_(ops::times(x_TX, adapter.left_NK), adapter.right_KB, 1, adapter.factor);
    return z_TB;
  }
  at::Tensor z_TN =
      is_coded ? ops::low_precision_gemm(narrowing.format, x_TX, w_NB) : ops::times_transposed(x_TX, w_NB);
  z_TN.addmm_(ops::times_transposed(x_TX, adapter.right_KB), adapter.left_NK.t(), 1, adapter.factor);
  return z_TN;
}

void add_magnitude_gradients(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                             const at::Tensor& b_SB, const TensorParallel& parallel) {
  at::Tensor b_TB;
  for (size_t i = 0; i < gradient.adapters.size(); ++i) {
    const at::Tensor& magnitude_N = gradient.adapters[i].magnitude_N;
    if (!magnitude_N.defined()) continue;
    const Adapter& adapter = matrix.adapters[i];
    if (!b_TB.defined()) b_TB = parallel.all_gather_rows(b_SB);
    scale_of_outputs(matrix);
    at::Tensor z_TN = unscaled(matrix, adapter, matrix.outputs_last ? a_TA : b_TB);
    z_TN.mul_(matrix.outputs_last ? b_TB : met(adapter, a_TA));
    const at::Tensor inverse_N =
        matrix.outputs_last ? matrix.scales->inverse_norm_O
                            : matrix.scales->inverse_norm_O.narrow(0, adapter.first_row, z_TN.size(1));
    const at::Tensor sum_N = z_TN.sum(0, /*keepdim=*/false, inverse_N.scalar_type());
    magnitude_N.addcmul_(sum_N, inverse_N);
  }
}

// Sums of squares over rows (dimension 0) or over columns, in `wide`. ATen's CPU copies what it widens.
at::Tensor sums_of_squares(const at::Tensor& w_NB, int64_t dimension, at::ScalarType wide) {
  constexpr int64_t kChunkElements = int64_t{1} << 16;
  const auto sums = [&](const at::Tensor& some) {
    return at::linalg_vector_norm(some, 2, at::IntArrayRef(dimension), /*keepdim=*/false, wide).square_();
  };
  if (!w_NB.is_cpu() || w_NB.scalar_type() == wide) return sums(w_NB);
  const int64_t rows = w_NB.size(0), chunk = std::max<int64_t>(1, kChunkElements / w_NB.size(1));
  at::Tensor all = at::zeros({w_NB.size(1 - dimension)}, w_NB.options().dtype(wide));
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    const at::Tensor some = sums(w_NB.narrow(0, begin, count));
    (dimension == 0 ? all : all.narrow(0, begin, count)).add_(some);
  }
  return all;
}

// Squares of v = w + f · left·right by output, from this rank's rows. For rows as outputs
//   ‖v‖² = ‖w‖² + left · (2f · w·rightᵀ + f² · left·(right·rightᵀ)), summed over the rank's columns,
// and likewise for columns, so that v is not formed.
at::Tensor output_squares(const Matrix& matrix, const Adapter& adapter, at::ScalarType wide) {
  const double f = adapter.factor;
  const at::Tensor w_NB = matrix.w_AB.narrow(0, adapter.first_row, adapter.left_NK.size(0));
  const at::Tensor left_NK = adapter.left_NK.to(wide), right_KB = adapter.right_KB.to(wide);
  at::Tensor squares_O = sums_of_squares(w_NB, matrix.outputs_last ? 0 : 1, wide);
  if (matrix.outputs_last) {
    at::Tensor mixed_KB = at::mm(adapter.left_NK.t(), w_NB).to(wide);
    mixed_KB.mul_(2 * f).addmm_(at::mm(left_NK.t(), left_NK), right_KB, 1, f * f);
    squares_O.add_(mixed_KB.mul_(right_KB).sum(0));
  } else {
    at::Tensor mixed_NK = at::mm(w_NB, adapter.right_KB.t()).to(wide);
    mixed_NK.mul_(2 * f).addmm_(left_NK, at::mm(right_KB, right_KB.t()), 1, f * f);
    squares_O.add_(mixed_NK.mul_(left_NK).sum(1));
  }
  return squares_O.clamp_min_(0);
}

void compute_scales(const Matrix& matrix) {
  constexpr double kLeastNorm = 1e-30;  // outputs without weights stay zero
  OutputScales& scales = *matrix.scales;
  const bool is_double = matrix.w_AB.scalar_type() == at::kDouble;
  const at::ScalarType wide = is_double ? at::kDouble : at::kFloat;
  const int64_t outputs = matrix.w_AB.size(matrix.outputs_last ? 1 : 0);
  const at::Tensor scale_O = at::ones({outputs}, matrix.w_AB.options().dtype(wide));
  scales.inverse_norm_O = at::ones_like(scale_O);
  for (const Adapter& adapter : matrix.adapters) {
    at::Tensor squares_N = output_squares(matrix, adapter, wide);
    if (matrix.outputs_last && scales.parallel.tp > 1)
      squares_N = scales.parallel.all_gather_rows(squares_N.unsqueeze(0)).sum(0);
    const int64_t first = matrix.outputs_last ? 0 : adapter.first_row;
    const at::Tensor inverse_N = scales.inverse_norm_O.narrow(0, first, squares_N.size(0));
    inverse_N.copy_(squares_N.sqrt_().clamp_min_(kLeastNorm).reciprocal_());
    scale_O.narrow(0, first, squares_N.size(0)).copy_(inverse_N * adapter.magnitude_N);
  }
  scales.scale_O = scale_O.to(matrix.w_AB.scalar_type());
}

}  // namespace

void decompose(Matrix& matrix, const TensorParallel& parallel) {
  const bool has_magnitudes = std::ranges::any_of(
      matrix.adapters, [](const Adapter& adapter) { return adapter.magnitude_N.defined(); });
  if (matrix.defined() && has_magnitudes) matrix.scales = std::make_shared<OutputScales>(parallel);
}

at::Tensor scale_of_outputs(const Matrix& matrix) {
  if (matrix.scales == nullptr) return {};
  if (!matrix.scales->scale_O.defined()) compute_scales(matrix);
  return matrix.scales->scale_O;
}

void AdapterMask::choose(at::Tensor& narrow_XK) const {
  const at::Tensor chosen_XK = chosen(narrow_XK.size(0));
  if (chosen_XK.defined()) narrow_XK.mul_(chosen_XK);
}

at::Tensor AdapterMask::chosen(int64_t rows) const {
  if (!chosen_TK.defined()) return {};
  const at::Tensor& chosen_XK = rows == chosen_TK.size(0) ? chosen_TK : chosen_SK;
  SLUICE_ASSERT(chosen_XK.defined() && chosen_XK.size(0) == rows,
                base::text("nobody chose the adapters of ", rows, " rows of a step"));
  return chosen_XK;
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
           return adapter.left_NK.defined() || adapter.right_KB.defined() || adapter.magnitude_N.defined();
         });
}

at::Tensor times(const at::Tensor& all_TA, const Matrix& matrix) {
  const at::Tensor x_TA = matrix.outputs_last ? all_TA : scaled(all_TA, matrix);
  at::Tensor y_TB = product(matrix, x_TA, Right::kTransposed, [&] { return ops::times(x_TA, matrix.w_AB); });
  add_adapted(y_TB, x_TA, matrix);
  if (matrix.outputs_last) apply_scale(matrix, y_TB);
  return y_TB;
}

at::Tensor times_transposed(const at::Tensor& all_TB, const Matrix& matrix) {
  const at::Tensor x_TB = matrix.outputs_last ? scaled(all_TB, matrix) : all_TB;
  at::Tensor y_TA =
      product(matrix, x_TB, Right::kMatrix, [&] { return ops::times_transposed(x_TB, matrix.w_AB); });
  for (const Adapter& adapter : matrix.adapters) {
    at::Tensor narrow_TK = ops::times_transposed(x_TB, adapter.right_KB);
    choose(matrix, narrow_TK);
    met(adapter, y_TA).addmm_(narrow_TK, adapter.left_NK.t(), 1, adapter.factor);
  }
  if (!matrix.outputs_last) apply_scale(matrix, y_TA);
  return y_TA;
}

at::Tensor add_times(const at::Tensor& base_TB, const at::Tensor& x_TA, const Matrix& matrix) {
  const LowPrecision& narrowing = matrix.low_precision;
  if (matrix.scales != nullptr) return times(x_TA, matrix).add_(base_TB);
  if (is_narrow(narrowing) || narrowing.errors != nullptr) return base_TB + times(x_TA, matrix);
  at::Tensor y_TB = ops::add_times(base_TB, x_TA, matrix.w_AB);
  add_adapted(y_TB, x_TA, matrix);
  return y_TB;
}

std::vector<AdapterRows> adapter_rows(const Matrix& matrix, const Matrix& gradient,
                                      const at::Tensor& given_TA, const at::Tensor& given_SB,
                                      const TensorParallel& parallel) {
  std::vector<AdapterRows> narrow(gradient.adapters.size());
  if (narrow.empty()) return narrow;
  add_magnitude_gradients(matrix, gradient, given_TA, given_SB, parallel);
  const at::Tensor a_TA = matrix.outputs_last ? given_TA : scaled(given_TA, matrix);
  const at::Tensor b_SB = matrix.outputs_last ? scaled(given_SB, matrix) : given_SB;
  for (size_t i = 0; i < narrow.size(); ++i) {
    const Adapter& adapter = matrix.adapters[i];
    const at::Tensor scale_O = scale_of_outputs(matrix);
    if (scale_O.defined() && matrix.outputs_last) narrow[i].right_scale_B = scale_O;
    if (scale_O.defined() && !matrix.outputs_last)
      narrow[i].left_scale_N = scale_O.narrow(0, adapter.first_row, adapter.left_NK.size(0));
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
    const at::Tensor &left_NK = gradient.adapters[i].left_NK, &right_KB = gradient.adapters[i].right_KB;
    if (left_NK.defined()) {
      const at::Tensor a_TN = a_TA.narrow(1, gradient.adapters[i].first_row, left_NK.size(0));
      const at::Tensor& scale_N = narrow[i].left_scale_N;
      add_scaled_product(left_NK, a_TN, narrow[i].b_TK, scale_N.defined() ? scale_N.unsqueeze(1) : scale_N);
    }
    if (right_KB.defined()) add_scaled_product(right_KB, narrow[i].a_TK, b_TB, narrow[i].right_scale_B);
  }
}

void accumulate_gradient(const at::Tensor& gradient_AB, const at::Tensor& a_TA, const at::Tensor& b_TB) {
  if (gradient_AB.defined())
    ops::accumulate_weight_gradient(gradient_AB, a_TA.contiguous(), b_TB.contiguous());
}

}  // namespace sluice::layers
