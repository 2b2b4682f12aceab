#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "layers/recurrent_rule.h"

namespace sluice::layers {
namespace {

// One product gives gate, values, keys, queries and steps side by side.
class Mamba2Rule final : public RecurrentRule {
 public:
  using RecurrentRule::RecurrentRule;

  RecurrentShape shape() const override { return {.heads = own_, .turned = true}; }
  Projected project(PartRows& rows) const override {
    const at::Tensor all_TX = rows.product(0);
    const int64_t values = all_heads().value_columns(), keys = all_heads().key_columns();
    const auto some = [&](int64_t begin, int64_t width) { return all_TX.narrow(1, begin, width); };
    return {at::cat({some(2 * values + keys, keys), some(2 * values, keys), some(values, values)}, 1),
            some(2 * values + 2 * keys, all_heads().values()).contiguous(), some(0, values).contiguous()};
  }
  void add_gradients(Projected d, at::Tensor /*narrow_TL*/, PartGradient& to) const override {
    const int64_t values = all_heads().value_columns(), keys = all_heads().key_columns();
    const auto some = [&](int64_t begin, int64_t width) { return d.qkv_TC.narrow(1, begin, width); };
    to.add(0, at::cat({d.gate_TV, some(2 * keys, values), some(keys, keys), some(0, keys), d.rate_TR}, 1));
  }

  void set_rates(const LaneHeads& heads, const at::Tensor& /*numbers_AR*/,
                 RecurrentMix& mixed) const override {
    const base::Interval own = heads.value_heads();
    mixed.input.rate_TH = steps_and_decays(weights_, own, mixed);
    mixed.skip_N1 = part_of(weights_.skip_N, own).unsqueeze(1);
  }
  RatesGradient rates_backward(const LaneHeads& heads, const RecurrentMix& mixed,
                               const ops::RecurrenceGradient& gradient) const override {
    at::Tensor dnumber_AN =
        steps_backward(weights_, gradients_, heads.value_heads(), mixed, gradient.dlog_decay)
            .add_(gradient.drate_TH)
            .mul_(at::sigmoid(mixed.number_AN));
    return {dnumber_AN, dnumber_AN};
  }

  void add_skipped(const RecurrentMix& mixed, const at::Tensor& out_AHD) const override {
    at::Tensor sum_AHD = out_AHD;
    sum_AHD.addcmul_(mixed.input.v_THD, mixed.skip_N1);
  }
  void skip_backward(const LaneHeads& heads, const RecurrentMix& mixed, const at::Tensor& dout_AHD,
                     const at::Tensor& dv_AHD) const override {
    const at::Tensor wide_AHD = wide(dout_AHD);
    at::Tensor sum_AHD = dv_AHD;
    sum_AHD.addcmul_(wide_AHD, mixed.skip_N1);
    const base::Interval own = heads.value_heads();
    if (gradients_.skip_N.defined())
      gradients_.skip_N.narrow(0, own.begin, own.size())
          .add_((wide_AHD * mixed.input.v_THD).sum(at::IntArrayRef({0, 2})));
  }

  // A norm spans all heads of a group.
  at::Tensor gated_norm(const at::Tensor& out_TV, const at::Tensor& gate_TV) const override {
    if (!weights_.head_norm_D.defined()) return out_TV * at::silu(gate_TV);
    return ops::gated_group_norm(out_TV, gate_TV, weights_.head_norm_D, all_heads().keys(), own_.norm_eps);
  }
  ops::GatedNormGradient gated_norm_backward(const at::Tensor& da_TV, const at::Tensor& out_TV,
                                             const at::Tensor& gate_TV) const override {
    if (!weights_.head_norm_D.defined())
      return {da_TV * at::silu(gate_TV), at::silu_backward(da_TV * out_TV, gate_TV)};
    return ops::gated_group_norm_backward(da_TV, out_TV, gate_TV, weights_.head_norm_D, all_heads().keys(),
                                          own_.norm_eps, gradients_.head_norm_D);
  }
};

}  // namespace

std::unique_ptr<const RecurrentRule> make_mamba2_rule(const model::Mamba2& own, int tp,
                                                      RecurrentWeights weights, RecurrentWeights gradients) {
  return std::make_unique<const Mamba2Rule>(own.heads, tp, std::move(weights), std::move(gradients));
}

}  // namespace sluice::layers
