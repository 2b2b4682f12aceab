#include "layers/recurrent_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

namespace sluice::layers {

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
