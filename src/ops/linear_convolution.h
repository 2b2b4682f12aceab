// The convolutions of ops/short_convolution.h without the SiLU behind them: y_t = Σ_j w_j·x_{t−W+1+j} + bias.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

struct HaloRows;  // ops/short_convolution.h
struct ShortConvolution;

// y [T, C] in float (double of double).
at::Tensor linear_convolution(const HaloRows& rows, const at::Tensor& marginal_RC,
                              const ShortConvolution& convolution);

// The gradient of what with_halos() made, whose own rows are own_T. Adds those of w and bias to
// `gradients`.
at::Tensor linear_convolution_backward(const HaloRows& rows, const at::Tensor& dy_TC,
                                       const at::Tensor& marginal_RC, const ShortConvolution& convolution,
                                       const ShortConvolution& gradients);

}  // namespace sluice::ops
