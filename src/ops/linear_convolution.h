// The convolutions of ops/short_convolution.h without SiLU: y_t = Σ_j w_j·x_{t−W+1+j} + bias.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

struct HaloRows;  // ops/short_convolution.h
struct ShortConvolution;

// y [T, C] in float (double for double).
at::Tensor linear_convolution(const HaloRows& rows, const at::Tensor& marginal_RC,
                              const ShortConvolution& convolution);

// The gradient of with_halos()' result, in which own_T are the micro-batch's own rows. Adds the gradients of
// w and bias to `gradients`.
at::Tensor linear_convolution_backward(const HaloRows& rows, const at::Tensor& dy_TC,
                                       const at::Tensor& marginal_RC, const ShortConvolution& convolution,
                                       const ShortConvolution& gradients);

}  // namespace sluice::ops
