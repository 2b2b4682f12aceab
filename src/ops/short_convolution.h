// Causal depthwise convolutions, a few rows wide, over packed pieces, followed by SiLU: y_t = silu(Σ_j
// w_j·x_{t−W+1+j} + bias), over rows of the same sequence alone. The halo of a piece holds the rows in front
// of it: rows of another lane's piece, or zeros if the sequence begins there.
//
// Row and width names: T rows of a micro-batch, P pieces, M = W − 1 rows of a halo, C channels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sluice::ops {

// Row indices once each piece has its halo in front of it; one more piece stands behind all others.
struct HaloRows {
  int64_t halo = 0;   // M
  int64_t rows = 0;   // halos included
  at::Tensor own_T;   // int64: the micro-batch's rows
  at::Tensor halo_X;  // int64 [P·M]: the halos' rows, piece after piece
  at::Tensor last_X;  // likewise: the last M rows of each piece, its halo's if it is shorter
};
// Rows behind the pieces form one more piece. REQUIRES: lengths > 0, W >= 1.
HaloRows halo_rows(const std::vector<int64_t>& lengths, int64_t rows, int64_t width,
                   const at::Device& device);

// Joins x [T, C] and the halos' rows [P·M, C], undefined for zeros, in float (double for double).
at::Tensor with_halos(const HaloRows& rows, const at::Tensor& x_TC, const at::Tensor& margin_XC);

// The parameters: w [C, W], and a bias or none; or their gradients, undefined if not wanted.
struct ShortConvolution {
  at::Tensor w_CW;
  at::Tensor bias_C;
};

// y [T, C] in float (double for double).
at::Tensor short_convolution(const HaloRows& rows, const at::Tensor& marginal_RC,
                             const ShortConvolution& convolution);

// The gradient of with_halos()' result, in which own_T are the micro-batch's own rows. Adds the gradients of
// w and bias to `gradients`.
at::Tensor short_convolution_backward(const HaloRows& rows, const at::Tensor& dy_TC,
                                      const at::Tensor& marginal_RC, const ShortConvolution& convolution,
                                      const ShortConvolution& gradients);

}  // namespace sluice::ops
