// Over the w columns of all ranks let r = (Σ x² ÷ w + eps)^-1/2, n = x·r, y = w·n and g = w·dy. Then
//   dx = r·(g − n · Σ g·n ÷ w),    dw = Σ_R dy·n.
// Columns that m ranks share count m times in the squares, and each rank has a part of their g. Parts of g
// add up; so do those of dx if each rank takes an m-th of the sum Σ g·n.
#include "layers/rank_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

#include "ops/norm.h"

namespace sluice::layers {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); }

}  // namespace

at::Tensor RankNorm::summed(const at::Tensor& own_R) const {
  return parallel.all_gather_rows(own_R.unsqueeze(0)).sum(0);
}

at::Tensor RankNorm::inverse_rms(const at::Tensor& wide_RW) const {
  return at::rsqrt(summed(wide_RW.square().sum(-1)) / static_cast<double>(width) + eps);
}

at::Tensor RankNorm::forward(const at::Tensor& x_RW, const at::Tensor& weight_W) const {
  if (ranks == 1) return ops::rms_norm(x_RW, weight_W, eps, offset).y_TH;
  const at::Tensor x = wide(x_RW);
  return (x * inverse_rms(x).unsqueeze(-1) * (wide(weight_W) + offset)).to(x_RW.scalar_type());
}

at::Tensor RankNorm::backward(const at::Tensor& dy_RW, const at::Tensor& x_RW, const at::Tensor& weight_W,
                              const at::Tensor& dweight_W) const {
  if (ranks == 1) {
    const at::Tensor scale_R = ops::rms_norm(x_RW, weight_W, eps, offset).inverse_rms_T;
    return ops::rms_norm_backward(dy_RW, x_RW, weight_W, scale_R, /*residual_TH=*/{}, dweight_W, offset)
        .dx_TH;
  }
  const at::Tensor x = wide(x_RW), dy = wide(dy_RW);
  const at::Tensor scale_R1 = inverse_rms(x).unsqueeze(-1);
  const at::Tensor n = x * scale_R1, g = dy * (wide(weight_W) + offset);
  if (dweight_W.defined()) dweight_W.add_((dy * n).sum(0));
  // `width` counts a column once per rank that has it: the division is the m-th above.
  const at::Tensor mean_R1 = (summed((g * n).sum(-1)) / static_cast<double>(width)).unsqueeze(-1);
  return ((g - n * mean_R1) * scale_R1).to(x_RW.scalar_type());
}

}  // namespace sluice::layers
