#include <ATen/TensorOperators.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>

#include "layers/recurrent_rule.h"

namespace sluice::layers {
namespace {

// Divides the logarithms of decays, so that decays start close to 1.
constexpr double kDecayDivisor = 16;

// Each key channel has its own decay, computed from a narrow row.
class GlaRule final : public RecurrentRule {
 public:
  using RecurrentRule::RecurrentRule;
  enum In : uint8_t { kQkv, kNarrow, kGate };

  Projected project(PartRows& rows) const override {
    Projected made{.qkv_TC = rows.product(kQkv)};
    made.narrow_TL = rows.product(kNarrow);
    made.rate_TR = times_transposed(made.narrow_TL, weights_.rates_RH);
    made.gate_TV = rows.product(kGate);
    return made;
  }
  at::Tensor gate(PartRows& rows) const override { return rows.product(kGate); }
  void add_gradients(Projected d, at::Tensor narrow_TL, PartGradient& to) const override {
    to.add(kQkv, std::move(d.qkv_TC));
    to.add(kNarrow, times(d.rate_TR, weights_.rates_RH));
    if (gradients_.rates_RH.wanted()) {
      const int narrow = to.pending().keep(std::move(narrow_TL));
      to.inner_product(kRates, to.pending().keep(std::move(d.rate_TR)), {narrow});
    }
    to.add(kGate, std::move(d.gate_TV));
  }

  void scale_keys(RecurrentMix& mixed) const override {
    mixed.input.q_TGK = mixed.input.q_TGK * query_scale();
  }
  void scale_keys_backward(const RecurrentMix& /*mixed*/, at::Tensor& dq, at::Tensor& /*dk*/) const override {
    dq = dq.mul(query_scale());
  }
  void set_rates(const LaneHeads& heads, const at::Tensor& /*numbers_AR*/,
                 RecurrentMix& mixed) const override {
    mixed.input.log_decay =
        at::log_sigmoid(mixed.number_AN).div_(kDecayDivisor).unflatten(1, {heads.value_heads().size(), -1});
  }
  RatesGradient rates_backward(const LaneHeads& /*heads*/, const RecurrentMix& mixed,
                               const ops::RecurrenceGradient& gradient) const override {
    at::Tensor dnumber_AN =
        gradient.dlog_decay.flatten(1) * at::sigmoid(mixed.number_AN.neg()).div_(kDecayDivisor);
    return {dnumber_AN, dnumber_AN};
  }
};

}  // namespace

std::unique_ptr<const RecurrentRule> make_gla_rule(const model::Gla& own, int tp, RecurrentWeights weights,
                                                   RecurrentWeights gradients) {
  return std::make_unique<const GlaRule>(own.heads, tp, std::move(weights), std::move(gradients));
}

}  // namespace sluice::layers
