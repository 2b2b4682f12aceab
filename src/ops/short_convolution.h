// Causal depthwise convolutions a few rows wide over packed pieces, SiLU behind them: y_t =
// silu(Σ_j w_j·x_{t−W+1+j} + bias), of rows of the same sequence alone. What stands before a piece is in its
// margin: rows of another lane's piece, or zeros where a sequence begins.
//
// Row and width names: T rows of a micro-batch, P pieces, M = W − 1 rows of a margin, C channels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sluice::ops {

// Where rows stand once every piece has its margin in front of it; behind all is one more.
struct HaloRows {
  int64_t halo = 0;   // M
  int64_t rows = 0;   // with margins
  at::Tensor own_T;   // int64: of the micro-batch's
  at::Tensor halo_X;  // int64 [P·M]: of margins, piece after piece
  at::Tensor last_X;  // likewise: the last rows of each piece, its margin's where it is shorter
};
// Rows behind the pieces are a piece of their own. REQUIRES: lengths > 0, W >= 1.
HaloRows halo_rows(const std::vector<int64_t>& lengths, int64_t rows, int64_t width,
                   const at::Device& device);

// x [T, C] with what margins hold [P·M, C], undefined for zeros, as one in float (double of double).
at::Tensor with_halos(const HaloRows& rows, const at::Tensor& x_TC, const at::Tensor& margin_XC);

// Of w [C, W], and a bias or none; or their gradients, undefined where they are not wanted.
struct ShortConvolution {
  at::Tensor w_CW;
  at::Tensor bias_C;
};

// y [T, C] in float (double of double).
at::Tensor short_convolution(const HaloRows& rows, const at::Tensor& marginal_RC,
                             const ShortConvolution& convolution);

// The gradient of what with_halos() made, whose own rows are own_T. Adds those of w and bias to
// `gradients`.
at::Tensor short_convolution_backward(const HaloRows& rows, const at::Tensor& dy_TC,
                                      const at::Tensor& marginal_RC, const ShortConvolution& convolution,
                                      const ShortConvolution& gradients);

}  // namespace sluice::ops
