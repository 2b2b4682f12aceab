#include "layers/recurrent_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

namespace sluice::layers {
namespace {

// Divides by the Euclidean length, with eps inside the root as in published implementations.
constexpr double kLengthEps = 1e-6;
at::Tensor inverse_length(const at::Tensor& x_AGK) {
  return at::rsqrt(x_AGK.square().sum(-1, /*keepdim=*/true) + kLengthEps);
}
at::Tensor unit_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& inverse) {
  const at::Tensor y = x * inverse;
  return (dy - y * (dy * y).sum(-1, /*keepdim=*/true)) * inverse;
}

}  // namespace

void make_unit_keys(double scale, RecurrentMix& mixed) {
  ops::RecurrenceInput& input = mixed.input;
  input.delta = true;
  mixed.q_AGK = input.q_TGK;
  mixed.k_AGK = input.k_TGK;
  input.q_TGK = mixed.q_AGK * inverse_length(mixed.q_AGK).mul_(scale);
  input.k_TGK = mixed.k_AGK * inverse_length(mixed.k_AGK);
}

void unit_keys_backward(double scale, const RecurrentMix& mixed, at::Tensor& dq, at::Tensor& dk) {
  dq = unit_backward(dq.mul(scale), mixed.q_AGK, inverse_length(mixed.q_AGK));
  dk = unit_backward(dk, mixed.k_AGK, inverse_length(mixed.k_AGK));
}

void add_sums(const at::Tensor& to_N, base::Interval some, const at::Tensor& d_AN) {
  if (to_N.defined()) to_N.narrow(0, some.begin, some.size()).add_(d_AN.sum(0));
}

at::Tensor steps_and_decays(const RecurrentWeights& weights, base::Interval heads, RecurrentMix& mixed) {
  const at::Tensor decay_N = weights.decay_N.narrow(0, heads.begin, heads.size());
  const at::Tensor step_AN = at::softplus(mixed.number_AN);
  mixed.input.log_decay = step_AN * decay_N.to(ops::accumulator_type(decay_N)).exp().neg_();
  return step_AN;
}

at::Tensor steps_backward(const RecurrentWeights& weights, const RecurrentWeights& gradients,
                          base::Interval heads, const RecurrentMix& mixed, const at::Tensor& dlog_decay) {
  add_sums(gradients.decay_N, heads, dlog_decay * mixed.input.log_decay);
  const at::Tensor slope_N =
      weights.decay_N.narrow(0, heads.begin, heads.size()).to(mixed.number_AN.scalar_type()).exp().neg_();
  return dlog_decay * slope_N;
}

}  // namespace sluice::layers
