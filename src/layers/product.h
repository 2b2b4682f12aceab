// Products with stored matrices that may have adapters of low rank: to the rows `of` of w, factor ·
// left·right is added without being made, w itself staying as it is (model::Factor). With δ that sum and d
// its gradient,
//   dleft = factor · d·rightᵀ,    dright = factor · leftᵀ·d.
// Under TP left is cut as the rows are and right is whole on every rank; like a norm's, its gradient is then
// this rank's part of the sum.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "base/gemm_format.h"
#include "layers/tensor_parallel.h"

namespace sluice::layers {

// What rounding to a format would add to the products of layers, as a step computes them both ways, and how
// much of the residual stream and of the gradient that touches.
struct GemmErrors {
  // All of a layer, and in the mean but for the last: the square of a product's error over the product's own,
  // by what it computes; the square of what the layer adds to activations, or to their gradient, over that of
  // the result; the square of its matrices' gradient.
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
  base::GemmFormat format = base::GemmFormat::kAsComputed;  // that is asked about
  std::vector<std::array<Sum, kFigures>> by_layer;
  bool backward = false;  // whether inputs' gradients are being computed, not activations

  void add(int64_t layer, Figure figure, double value);
  // Of `part` and `whole`, their squares' quotient.
  void add(int64_t layer, Figure figure, const at::Tensor& part, const at::Tensor& whole);
};

// Which adapters the rows of a pass take, where a model has those of several tuned models side by side
// (generate/decoder.h): 1 where a column of narrow rows belongs to the row's own, else 0. K: all their ranks.
struct AdapterMask {
  at::Tensor chosen_TK;  // of all rows of the pass; undefined: every row takes all adapters
  at::Tensor chosen_SK;  // of this TP rank's shard

  // Drops from narrow rows what belongs to others' adapters.
  void choose(at::Tensor& narrow_XK) const;
};

// How the products of a layer are computed.
struct LowPrecision {
  base::GemmFormat format = base::GemmFormat::kAsComputed;
  GemmErrors* errors = nullptr;  // borrowed, added to; null: nobody asks
  int64_t layer = -1;
  const AdapterMask* rows = nullptr;  // borrowed; null: every row takes all adapters
};

// Row names: A, B the matrix's rows and columns on this rank, N the rows of it that an adapter is of, K its
// rank.
struct Adapter {
  at::Tensor left_NK;
  at::Tensor right_KB;
  int64_t first_row = 0;
  double factor = 0;
};

// A matrix, or its gradient, where undefined tensors are of what is not trained.
struct Matrix {
  at::Tensor w_AB;
  std::vector<Adapter> adapters;
  LowPrecision low_precision = {};  // of products with w; those with adapters are as the run computes

  bool defined() const { return w_AB.defined(); }
  // Of a gradient: whether any of it is wanted.
  bool wanted() const;
};

// x·w: x [T, A] -> [T, B].
at::Tensor times(const at::Tensor& x_TA, const Matrix& matrix);
// x·wᵀ: x [T, B] -> [T, A].
at::Tensor times_transposed(const at::Tensor& x_TB, const Matrix& matrix);
// base + x·w; base [T, B] stays as it is.
at::Tensor add_times(const at::Tensor& base_TB, const at::Tensor& x_TA, const Matrix& matrix);

// Of rows whose aᵀ·b is the gradient of w: what an adapter's factors make of them, so that its gradients need
// no parameters any more. Undefined where they are not wanted.
struct AdapterRows {
  at::Tensor a_TK;  // factor · a·left
  at::Tensor b_TK;  // factor · b·rightᵀ
};
std::vector<AdapterRows> adapter_rows(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                                      const at::Tensor& b_TB);
// The same where each TP rank has a shard of b's rows.
std::vector<AdapterRows> adapter_rows(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_TA,
                                      const at::Tensor& b_SB, const TensorParallel& parallel);
// Adds to what is wanted of `gradient`, that of w being aᵀ·b (ops::accumulate_weight_gradient).
void accumulate_gradient(const Matrix& gradient, const std::vector<AdapterRows>& narrow,
                         const at::Tensor& a_TA, const at::Tensor& b_TB);
// The same of a matrix that has no adapters; nothing where its gradient is undefined.
void accumulate_gradient(const at::Tensor& gradient_AB, const at::Tensor& a_TA, const at::Tensor& b_TB);

}  // namespace sluice::layers
