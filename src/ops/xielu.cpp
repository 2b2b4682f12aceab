#include "ops/xielu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "ops/simd.h"

namespace sluice::ops {
namespace {

constexpr double kBeta = 0.5, kEps = -1e-6;

at::Tensor wide(const at::Tensor& x) { return x.to(accumulator_type(x)); }

// The function that is multiplied by b.
at::Tensor below(const at::Tensor& x) { return at::expm1(at::clamp_max(x, kEps)) - x; }

}  // namespace

at::Tensor xielu(const at::Tensor& x_TF, const at::Tensor& alpha_2) {
  const at::Tensor x = wide(x_TF), slope_2 = at::softplus(wide(alpha_2));
  const at::Tensor above = slope_2[0] * x.square();
  return (at::where(x > 0, above, below(x) * (slope_2[1] + kBeta)) + kBeta * x).to(x_TF.scalar_type());
}

at::Tensor xielu_backward(const at::Tensor& dy_TF, const at::Tensor& x_TF, const at::Tensor& alpha_2,
                          const at::Tensor& dalpha_2) {
  const at::Tensor x = wide(x_TF), dy = wide(dy_TF), slope_2 = at::softplus(wide(alpha_2));
  const at::Tensor positive = x > 0;
  if (dalpha_2.defined()) {
    const at::Tensor sums_2 = at::stack(
        {(dy * at::where(positive, x.square(), 0.0)).sum(), (dy * at::where(positive, 0.0, below(x))).sum()});
    dalpha_2.add_(sums_2 * at::sigmoid(wide(alpha_2)));
  }
  const at::Tensor turned = at::where(x < kEps, x.exp(), 0.0) - 1;
  const at::Tensor slope = at::where(positive, 2 * slope_2[0] * x, turned * (slope_2[1] + kBeta));
  return ((slope + kBeta) * dy).to(x_TF.scalar_type());
}

}  // namespace sluice::ops
