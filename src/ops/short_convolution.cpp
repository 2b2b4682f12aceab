#include "ops/short_convolution.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ops/device.h"
#include "ops/linear_convolution.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

// The convolution before SiLU, for every row with a halo's width in front of it. [R − M, C]
at::Tensor convolved(const HaloRows& rows, const at::Tensor& marginal_RC,
                     const ShortConvolution& convolution) {
  const at::Tensor wide_CW = convolution.w_CW.to(marginal_RC.scalar_type());
  const int64_t count = rows.rows - rows.halo;
  at::Tensor y_RC = marginal_RC.narrow(0, 0, count) * wide_CW.select(1, 0);
  for (int64_t j = 1; j <= rows.halo; ++j)
    y_RC.addcmul_(marginal_RC.narrow(0, j, count), wide_CW.select(1, j));
  if (convolution.bias_C.defined()) y_RC.add_(convolution.bias_C);
  return y_RC;
}

}  // namespace

HaloRows halo_rows(const std::vector<int64_t>& lengths, int64_t rows, int64_t width,
                   const at::Device& device) {
  HaloRows result{.halo = width - 1};
  std::vector<int64_t> own, margins, last;
  const auto piece = [&](int64_t length, bool counts) {
    for (int64_t row = 0; row < result.halo; ++row) {
      if (counts) margins.push_back(result.rows);
      ++result.rows;
    }
    for (int64_t row = 0; row < length; ++row) own.push_back(result.rows++);
    for (int64_t row = result.rows - result.halo; row < result.rows && counts; ++row) last.push_back(row);
  };
  for (const int64_t length : lengths) piece(length, true);
  piece(rows - static_cast<int64_t>(own.size()), false);
  result.rows += result.halo;
  result.own_T = to_device(own, device);
  result.halo_X = to_device(margins, device);
  result.last_X = to_device(last, device);
  return result;
}

at::Tensor with_halos(const HaloRows& rows, const at::Tensor& x_TC, const at::Tensor& margin_XC) {
  const at::ScalarType wide = accumulator_type(x_TC);
  at::Tensor all_RC = at::zeros({rows.rows, x_TC.size(1)}, x_TC.options().dtype(wide));
  all_RC.index_copy_(0, rows.own_T, x_TC.to(wide));
  if (margin_XC.defined()) all_RC.index_copy_(0, rows.halo_X, margin_XC.to(wide));
  return all_RC;
}

at::Tensor short_convolution(const HaloRows& rows, const at::Tensor& marginal_RC,
                             const ShortConvolution& convolution) {
  return at::silu(linear_convolution(rows, marginal_RC, convolution));
}

at::Tensor linear_convolution(const HaloRows& rows, const at::Tensor& marginal_RC,
                              const ShortConvolution& convolution) {
  return convolved(rows, marginal_RC, convolution).index_select(0, rows.own_T - rows.halo);
}

at::Tensor short_convolution_backward(const HaloRows& rows, const at::Tensor& dy_TC,
                                      const at::Tensor& marginal_RC, const ShortConvolution& convolution,
                                      const ShortConvolution& gradients) {
  const at::Tensor y_TC = linear_convolution(rows, marginal_RC, convolution);
  const at::Tensor s_TC = at::sigmoid(y_TC);
  return linear_convolution_backward(rows, dy_TC * s_TC * (1 + y_TC * (1 - s_TC)), marginal_RC, convolution,
                                     gradients);
}

at::Tensor linear_convolution_backward(const HaloRows& rows, const at::Tensor& dy_TC,
                                       const at::Tensor& marginal_RC, const ShortConvolution& convolution,
                                       const ShortConvolution& gradients) {
  const at::Tensor wide_CW = convolution.w_CW.to(marginal_RC.scalar_type());
  const int64_t count = rows.rows - rows.halo;
  // Zero at halos' rows, whose outputs nobody uses.
  at::Tensor dconvolved_RC = at::zeros({count, dy_TC.size(1)}, marginal_RC.options());
  dconvolved_RC.index_copy_(0, rows.own_T - rows.halo, dy_TC);
  at::Tensor dx_RC = at::zeros_like(marginal_RC), dw_CW = gradients.w_CW, dbias_C = gradients.bias_C;
  for (int64_t j = 0; j <= rows.halo; ++j) {
    dx_RC.narrow(0, j, count).addcmul_(dconvolved_RC, wide_CW.select(1, j));
    if (dw_CW.defined()) dw_CW.select(1, j).add_((dconvolved_RC * marginal_RC.narrow(0, j, count)).sum(0));
  }
  if (dbias_C.defined()) dbias_C.add_(dconvolved_RC.sum(0));
  return dx_RC;
}

}  // namespace sluice::ops
