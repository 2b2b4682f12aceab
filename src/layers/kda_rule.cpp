#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include "layers/recurrent_rule.h"
#include "ops/linear.h"

namespace sluice::layers {
namespace {

// Rates are per value head, decays per key channel: exp(−e^A · softplus(number)). The first half of a narrow
// row makes decays; the other half makes gates, which are sigmoids.
class KdaRule final : public RecurrentRule {
 public:
  enum In : uint8_t { kQkv, kNarrow, kRate };
  static constexpr auto kGate = ops::HeadGate::kSigmoid;

  KdaRule(const model::Kda& own, int tp, RecurrentWeights weights, RecurrentWeights gradients)
      : RecurrentRule(own.heads, tp, std::move(weights), std::move(gradients)), rank_(own.rank) {}

  RecurrentShape shape() const override { return {own_, /*rated=*/true}; }
  Projected project(PartRows& rows) const override {
    Projected made{.qkv_TC = rows.product(kQkv), .rate_TR = rows.product(kRate), .gate_TV = {}};
    made.narrow_TL = rows.product(kNarrow);
    const at::Tensor decay_TK = times_transposed(made.narrow_TL.narrow(1, 0, rank_), weights_.rates_RH);
    made.rate_TR = at::cat({made.rate_TR, decay_TK}, 1);
    made.gate_TV = gate_of(made.narrow_TL);
    return made;
  }
  at::Tensor gate(PartRows& rows) const override { return gate_of(rows.product(kNarrow)); }
  void add_gradients(Projected d, at::Tensor narrow_TL, PartGradient& to) const override {
    const int64_t heads = all_heads().values(), decays = d.rate_TR.size(1) - heads;
    at::Tensor ddecay_TK = d.rate_TR.narrow(1, heads, decays).contiguous();
    to.add(kQkv, std::move(d.qkv_TC));
    to.add(kNarrow,
           at::cat({times(ddecay_TK, weights_.rates_RH), ops::times(d.gate_TV, weights_.gate_VH)}, 1));
    to.add(kRate, d.rate_TR.narrow(1, 0, heads).contiguous());
    const bool rates = gradients_.rates_RH.wanted(), gates = gradients_.gate_VH.defined();
    if (!rates && !gates) return;
    const int narrow = to.pending().keep(std::move(narrow_TL));
    if (rates) to.inner_product(kRates, to.pending().keep(std::move(ddecay_TK)), {narrow, {0, rank_}});
    if (gates)
      to.inner_product(kGateOfNarrow, to.pending().keep(std::move(d.gate_TV)), {narrow, {rank_, 2 * rank_}});
  }

  void scale_keys(RecurrentMix& mixed) const override { make_unit_keys(query_scale(), mixed); }
  void scale_keys_backward(const RecurrentMix& mixed, at::Tensor& dq, at::Tensor& dk) const override {
    unit_keys_backward(query_scale(), mixed, dq, dk);
  }
  void set_rates(const LaneHeads& heads, const at::Tensor& numbers_AR, RecurrentMix& mixed) const override {
    const base::Interval own = heads.value_heads();
    mixed.input.rate_TH = at::sigmoid(numbers_AR.narrow(1, 0, own.size()));
    mixed.input.log_decay = at::softplus(mixed.number_AN).unflatten(1, {own.size(), -1}) * slope_of(own);
  }
  RatesGradient rates_backward(const LaneHeads& heads, const RecurrentMix& mixed,
                               const ops::RecurrenceGradient& gradient) const override {
    const base::Interval own = heads.value_heads();
    const at::Tensor& dlog_decay = gradient.dlog_decay;
    add_sums(gradients_.decay_N, own, (dlog_decay * mixed.input.log_decay).sum(2));
    const at::Tensor dnumber_AN = (dlog_decay * slope_of(own)).flatten(1).mul_(at::sigmoid(mixed.number_AN));
    const at::Tensor& rate_AN = mixed.input.rate_TH;
    return {at::cat({gradient.drate_TH * rate_AN * (1 - rate_AN), dnumber_AN}, 1), dnumber_AN};
  }

  at::Tensor gated_norm(const at::Tensor& out_TV, const at::Tensor& gate_TV) const override {
    return ops::gated_head_norm(out_TV, gate_TV, weights_.head_norm_D, own_.norm_eps, kGate);
  }
  ops::GatedNormGradient gated_norm_backward(const at::Tensor& da_TV, const at::Tensor& out_TV,
                                             const at::Tensor& gate_TV) const override {
    return ops::gated_head_norm_backward(da_TV, out_TV, gate_TV, weights_.head_norm_D, own_.norm_eps,
                                         gradients_.head_norm_D, kGate);
  }

 private:
  at::Tensor gate_of(const at::Tensor& narrow_TL) const {
    return ops::times_transposed(narrow_TL.narrow(1, rank_, rank_), weights_.gate_VH);
  }
  // −e^A, [heads, 1].
  at::Tensor slope_of(base::Interval heads) const {
    return part_of(weights_.decay_N, heads).exp().neg_().unsqueeze(1);
  }

  int64_t rank_;
};

}  // namespace

std::unique_ptr<const RecurrentRule> make_kda_rule(const model::Kda& own, int tp, RecurrentWeights weights,
                                                   RecurrentWeights gradients) {
  return std::make_unique<const KdaRule>(own, tp, std::move(weights), std::move(gradients));
}

}  // namespace sluice::layers
