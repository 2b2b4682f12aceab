// Products with stored matrices that may have low-rank adapters (LoRA). An adapter adds factor · left·right
// to some rows of w; this sum is never formed, and w stays as it is (model::Factor). With d the gradient of
// those rows of the sum,
//   dleft = factor · d·rightᵀ,    dright = factor · leftᵀ·d.
// Under TP left is cut as the rows are, and right is whole on every rank. Like a norm's, right's gradient on
// a rank is that rank's part of the sum.
//
// DoRA (model::Lora) multiplies output i of the sum v by m_i ÷ ‖v_i‖, which is not formed either: results are
// scaled, and so are gradients of results before their products with w and the factors. With d the gradient
// of the scaled result and z the result without the scale, summed over rows,
//   dm_i = Σ d_i·z_i ÷ ‖v_i‖.
// The norms are constants for gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/gemm_format.h"
#include "layers/tensor_parallel.h"
#include "ops/float8.h"

namespace sluice::layers {

// Errors that rounding to a format would cause in layers' products: a step computes each product both ways.
// Further figures relate a layer's products to the residual stream and its gradient.
struct GemmErrors {
  // All are per layer; all but the last are means. The first three: the squared error of products over their
  // square. Then, over the square of the result: the square of what the layer adds to activations, or to
  // their gradient. The last: the square of the gradient of its matrices.
  enum class Figure : uint8_t {
    kForward,
    kInputGradient,
    kWeightGradient,
    kOfActivation,
    kOfGradient,
    kGradientSquares
  };
  static constexpr size_t kFigures = 6;
  struct Sum {
    double sum = 0;
    int64_t count = 0;
  };
  base::GemmFormat format = base::GemmFormat::kAsComputed;  // the format that is measured
  std::vector<std::array<Sum, kFigures>> by_layer;
  bool backward = false;  // whether products are those of backward: input gradients, not activations

  void add(int64_t layer, Figure figure, double value);
  // Adds the quotient of the squares of `part` and `whole`.
  void add(int64_t layer, Figure figure, const at::Tensor& part, const at::Tensor& whole);
};

// Adapters that an engine step's rows use, if a model has several tuned models' (generate/decoder.h): 1 if a
// column of narrow rows belongs to the row's adapter, else 0. K: all adapters' ranks.
struct AdapterMask {
  at::Tensor chosen_TK;  // all rows of the engine step; undefined: every row takes all adapters
  at::Tensor chosen_SK;  // this TP rank's shard of rows

  // The mask of a tensor with so many rows; undefined: every row takes all adapters.
  at::Tensor chosen(int64_t rows) const;
  // Zeroes in each narrow row the columns of adapters that the row does not use.
  void choose(at::Tensor& narrow_XK) const;
};

// How the products of a layer are computed.
struct LowPrecision {
  base::GemmFormat format = base::GemmFormat::kAsComputed;
  GemmErrors* errors = nullptr;  // borrowed, added to; null: not measured
  int64_t layer = -1;
  const AdapterMask* rows = nullptr;  // borrowed; null: every row takes all adapters
};

// Row names: A, B the matrix's rows and columns on this rank; N the matrix's rows that an adapter changes, K
// the adapter's rank.
struct Adapter {
  at::Tensor left_NK;
  at::Tensor right_KB;
  int64_t first_row = 0;
  double factor = 0;
  at::Tensor magnitude_N = {};  // DoRA's, by output: a row of w, or a column if outputs are last
};

// DoRA's m ÷ ‖v‖ and 1 ÷ ‖v‖ by output, 1 where no adapter is. Computed when first needed, by then parameters
// are at hand and stay as they are; with outputs last and TP, norms are sums over the ranks' rows.
struct OutputScales {
  TensorParallel parallel;
  at::Tensor scale_O = {}, inverse_norm_O = {};  // undefined: not needed yet
};

// A matrix or its gradient. Gradients of frozen tensors are undefined.
struct Matrix {
  at::Tensor w_AB;
  std::vector<Adapter> adapters;
  LowPrecision low_precision = {};  // for products with w; those with adapters are in the run's type
  bool outputs_last = false;        // whether w is stored [in, out]
  std::shared_ptr<OutputScales> scales = {};  // null: no DoRA
  // For weights: codes of w that all products share while the operation lives. Null: w is coded, if at all,
  // for each product.
  std::shared_ptr<ops::Float8Weight> codes = {};

  bool defined() const { return w_AB.defined(); }
  // For a gradient: whether any of its tensors is trained.
  bool wanted() const;
};

// Gives the matrix scales if its adapters have magnitudes.
void decompose(Matrix& matrix, const TensorParallel& parallel);
// The factors of the matrix's outputs; undefined: all 1.
at::Tensor scale_of_outputs(const Matrix& matrix);

// x·w: x [T, A] -> [T, B].
at::Tensor times(const at::Tensor& x_TA, const Matrix& matrix);
// x·wᵀ: x [T, B] -> [T, A].
at::Tensor times_transposed(const at::Tensor& x_TB, const Matrix& matrix);
// base + x·w; base [T, B] stays as it is.
at::Tensor add_times(const at::Tensor& base_TB, const at::Tensor& x_TA, const Matrix& matrix);

// Products of rows with an adapter's factors, so that the adapter's gradients need no parameters later; aᵀ·b
// is the gradient of w. Undefined if these gradients are not wanted. adapter_rows() adds the gradients of
// DoRA's magnitudes to `gradient`, which takes the matrix's product once more.
struct AdapterRows {
  at::Tensor a_TK;  // factor · a·left
  at::Tensor b_TK;  // factor · b·rightᵀ
  // DoRA: factors of the rows of left's gradient, or of the columns of right's. Undefined: 1.
  at::Tensor left_scale_N = {}, right_scale_B = {};
};
std::vector<AdapterRows> adapter_rows(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                                      const at::Tensor& b_TB);
// The same where each TP rank has a shard of b's rows.
std::vector<AdapterRows> adapter_rows(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                                      const at::Tensor& b_SB, const TensorParallel& parallel);
// Adds to the trained tensors of `gradient`; w's is aᵀ·b (ops::accumulate_weight_gradient).
void accumulate_gradient(const Matrix& gradient, const std::vector<AdapterRows>& narrow,
                         const at::Tensor& a_TA, const at::Tensor& b_TB);
// The same for a matrix without adapters; does nothing if its gradient is undefined.
void accumulate_gradient(const at::Tensor& gradient_AB, const at::Tensor& a_TA, const at::Tensor& b_TB);

}  // namespace sluice::layers
