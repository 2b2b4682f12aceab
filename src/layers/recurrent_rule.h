// The rule of one recurrence (ops/recurrence.h): its in-products, the normalization of queries and keys,
// rates and decays from the numbers that tokens give, and the norm of the output. Code that all rules share
// is in layers/recurrent_block.cpp.
//
// Row names: T all rows of the micro-batch, A those that the lane works on (head_exchange.h), R with halo
// rows. Widths: C queries, keys and values of this rank or lane, V its values, R its rates and decays, L a
// narrow row; N, H value heads, G key heads, K a key's width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <memory>
#include <utility>

#include "layers/mixer.h"
#include "layers/recurrent_heads.h"
#include "ops/gated_norm.h"
#include "ops/recurrence.h"
#include "ops/short_convolution.h"
#include "ops/simd.h"

namespace sluice::layers {

// Missing weights are undefined. Vectors have one entry per value head, biases one per decay.
struct RecurrentWeights {
  Matrix rates_RH;  // GLA and KDA: [R, L]
  at::Tensor gate_VH;
  at::Tensor convolution_CW, convolution_bias_C;  // rows in the files' order
  at::Tensor decay_N, step_bias_N;
  at::Tensor skip_N;       // Mamba-2
  at::Tensor head_norm_D;  // a head's width; Mamba-2: all heads'
};

// The results of in-products, or their gradients.
struct Projected {
  at::Tensor qkv_TC, rate_TR, gate_TV;
  at::Tensor narrow_TL = {};
};

// The recurrence's input, and the tensors from which it was made.
struct RecurrentMix {
  ops::RecurrenceInput input;
  at::Tensor marginal_RC;
  ops::ShortConvolution convolution;
  at::Tensor q_AGK, k_AGK;  // delta rules: before they are normalized
  at::Tensor number_AN;     // numbers of the decays, with their biases
  at::Tensor skip_N1;       // Mamba-2, in float
  at::Tensor key_of_value;  // undefined: all key heads serve equally many
};

// The gradients of a lane's numbers, and those of its decays' numbers with biases.
struct RatesGradient {
  at::Tensor drate_AR, dnumber_AN;
};

class RecurrentRule {
 public:
  // The mixer's own weight gradients in PartGradient.
  enum Inner : uint8_t { kConvolution, kRates, kGateOfNarrow };  // the latter two: GLA, KDA

  // `own` must outlive the rule.
  RecurrentRule(const model::StateHeads& own, int tp, RecurrentWeights weights, RecurrentWeights gradients)
      : own_(own), tp_(tp), weights_(std::move(weights)), gradients_(std::move(gradients)) {}
  RecurrentRule(const RecurrentRule&) = delete;
  RecurrentRule& operator=(const RecurrentRule&) = delete;
  virtual ~RecurrentRule() = default;

  virtual RecurrentShape shape() const { return {own_}; }
  virtual Projected project(PartRows& rows) const = 0;
  // The gate of project() alone.
  virtual at::Tensor gate(PartRows& rows) const { return project(rows).gate_TV; }
  // Adds the in-products' gradients to `to`. `narrow_TL`: from project().
  virtual void add_gradients(Projected d, at::Tensor narrow_TL, PartGradient& to) const = 0;

  // Normalizes the mix's queries and keys, by key head, for the recurrence; and the backward of this.
  virtual void scale_keys(RecurrentMix& /*mixed*/) const {}
  virtual void scale_keys_backward(const RecurrentMix& /*mixed*/, at::Tensor& /*dq*/,
                                   at::Tensor& /*dk*/) const {}
  // Sets the mix's rates and decays from a lane's numbers, in float. number_AN already has the decays'
  // numbers with their biases.
  virtual void set_rates(const LaneHeads& heads, const at::Tensor& numbers_AR, RecurrentMix& mixed) const = 0;
  // The gradients of a lane's numbers. Adds the gradients of vectors, except those of biases.
  virtual RatesGradient rates_backward(const LaneHeads& heads, const RecurrentMix& mixed,
                                       const ops::RecurrenceGradient& gradient) const = 0;

  // Adds the skip connection past the recurrence to its output. Backward adds to values' gradients.
  virtual void add_skipped(const RecurrentMix& /*mixed*/, const at::Tensor& /*out_AHD*/) const {}
  virtual void skip_backward(const LaneHeads& /*heads*/, const RecurrentMix& /*mixed*/,
                             const at::Tensor& /*dout_AHD*/, const at::Tensor& /*dv_AHD*/) const {}

  // Norms the output and multiplies it with the activated gate.
  virtual at::Tensor gated_norm(const at::Tensor& out_TV, const at::Tensor& gate_TV) const {
    return ops::gated_head_norm(out_TV, gate_TV, weights_.head_norm_D, own_.norm_eps);
  }
  virtual ops::GatedNormGradient gated_norm_backward(const at::Tensor& da_TV, const at::Tensor& out_TV,
                                                     const at::Tensor& gate_TV) const {
    return ops::gated_head_norm_backward(da_TV, out_TV, gate_TV, weights_.head_norm_D, own_.norm_eps,
                                         gradients_.head_norm_D);
  }

  const model::StateHeads& own() const { return own_; }
  const RecurrentWeights& weights() const { return weights_; }
  const RecurrentWeights& gradients() const { return gradients_; }
  LaneHeads all_heads() const { return {shape(), tp_, 1, 0}; }
  LaneHeads heads_of(int lanes, int lane) const { return {shape(), tp_, lanes, lane}; }

 protected:
  double query_scale() const { return 1 / std::sqrt(static_cast<double>(own_.key_width)); }
  static at::Tensor wide(const at::Tensor& x) { return x.to(ops::accumulator_type(x)); }
  // A lane's part of a vector over value heads, in float.
  static at::Tensor part_of(const at::Tensor& x_N, base::Interval some) {
    return wide(x_N.narrow(0, some.begin, some.size()));
  }

  const model::StateHeads& own_;
  int tp_;
  RecurrentWeights weights_, gradients_;
};

// Scales a delta rule's queries and keys to length 1, and queries then by `scale`; and the backward.
void make_unit_keys(double scale, RecurrentMix& mixed);
void unit_keys_backward(double scale, const RecurrentMix& mixed, at::Tensor& dq, at::Tensor& dk);
// Adds the sum over rows to a lane's part of a vector's gradient, unless this gradient is undefined.
void add_sums(const at::Tensor& to_N, base::Interval some, const at::Tensor& d_AN);
// Sets decays to exp(−step·e^A), each step the softplus of its number, and returns the steps. The backward
// returns the steps' gradient.
at::Tensor steps_and_decays(const RecurrentWeights& weights, base::Interval heads, RecurrentMix& mixed);
at::Tensor steps_backward(const RecurrentWeights& weights, const RecurrentWeights& gradients,
                          base::Interval heads, const RecurrentMix& mixed, const at::Tensor& dlog_decay);

// `own` must outlive the rule.
std::unique_ptr<const RecurrentRule> make_delta_rule(const model::DeltaRule& own, int tp,
                                                     RecurrentWeights weights, RecurrentWeights gradients);
std::unique_ptr<const RecurrentRule> make_mamba2_rule(const model::Mamba2& own, int tp,
                                                      RecurrentWeights weights, RecurrentWeights gradients);
std::unique_ptr<const RecurrentRule> make_gla_rule(const model::Gla& own, int tp, RecurrentWeights weights,
                                                   RecurrentWeights gradients);

std::unique_ptr<const RecurrentRule> make_kda_rule(const model::Kda& own, int tp, RecurrentWeights weights,
                                                   RecurrentWeights gradients);

}  // namespace sluice::layers
