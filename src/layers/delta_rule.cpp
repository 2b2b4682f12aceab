#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>

#include "layers/recurrent_rule.h"

namespace sluice::layers {
namespace {

class GatedDeltaRule final : public RecurrentRule {
 public:
  enum In : uint8_t { kQkv, kNumbers, kGate };

  GatedDeltaRule(const model::DeltaRule& own, int tp, RecurrentWeights weights, RecurrentWeights gradients)
      : RecurrentRule(own.heads, tp, std::move(weights), std::move(gradients)), rate_scale_(own.rate_scale) {}

  RecurrentShape shape() const override { return {own_, /*rated=*/true}; }
  Projected project(PartRows& rows) const override {
    Projected made{.qkv_TC = rows.product(kQkv), .rate_TR = rows.product(kNumbers), .gate_TV = {}};
    if (by_key_head()) return parted(made);
    made.gate_TV = rows.product(kGate);
    return made;
  }
  at::Tensor gate(PartRows& rows) const override {
    return by_key_head() ? project(rows).gate_TV : rows.product(kGate);
  }
  void add_gradients(Projected d, at::Tensor /*narrow_TL*/, PartGradient& to) const override {
    if (by_key_head()) d = joined(d);
    to.add(kQkv, std::move(d.qkv_TC));
    to.add(kNumbers, std::move(d.rate_TR));
    if (d.gate_TV.defined()) to.add(kGate, std::move(d.gate_TV));
  }

  void scale_keys(RecurrentMix& mixed) const override { make_unit_keys(query_scale(), mixed); }
  void scale_keys_backward(const RecurrentMix& mixed, at::Tensor& dq, at::Tensor& dk) const override {
    unit_keys_backward(query_scale(), mixed, dq, dk);
  }
  void set_rates(const LaneHeads& heads, const at::Tensor& numbers_AR, RecurrentMix& mixed) const override {
    const base::Interval own = heads.value_heads();
    mixed.input.rate_TH = at::sigmoid(numbers_AR.narrow(1, 0, own.size())).mul_(rate_scale_);
    steps_and_decays(weights_, own, mixed);
  }
  RatesGradient rates_backward(const LaneHeads& heads, const RecurrentMix& mixed,
                               const ops::RecurrenceGradient& gradient) const override {
    at::Tensor dnumber_AN =
        steps_backward(weights_, gradients_, heads.value_heads(), mixed, gradient.dlog_decay)
            .mul_(at::sigmoid(mixed.number_AN));
    const at::Tensor& rate_AN = mixed.input.rate_TH;
    const at::Tensor open_AN = rate_AN / rate_scale_;
    return {at::cat({gradient.drate_TH * rate_AN * (1 - open_AN), dnumber_AN}, 1), dnumber_AN};
  }

 private:
  // In files, and therefore in weights, the rows of a key head and of its value heads lie together.
  bool by_key_head() const { return !weights_.gate_VH.defined(); }
  // Brings each kind of rows together; and back.
  Projected parted(const Projected& by_key_head) const {
    const int64_t keys = all_heads().keys(), shared = all_heads().values() / keys;
    const int64_t key = own_.key_width, value = shared * own_.value_width;
    const at::Tensor all_TGX = by_key_head.qkv_TC.unflatten(1, {keys, -1});
    const at::Tensor numbers_TG2 = by_key_head.rate_TR.unflatten(1, {keys, -1});
    const auto some = [](const at::Tensor& x_TGX, int64_t begin, int64_t width) {
      return x_TGX.narrow(2, begin, width).flatten(1);
    };
    return {at::cat({some(all_TGX, 0, key), some(all_TGX, key, key), some(all_TGX, 2 * key, value)}, 1),
            at::cat({some(numbers_TG2, 0, shared), some(numbers_TG2, shared, shared)}, 1),
            some(all_TGX, 2 * key + value, value)};
  }
  Projected joined(const Projected& apart) const {
    const int64_t keys = all_heads().keys(), columns = all_heads().key_columns();
    const int64_t values = all_heads().value_columns(), heads = all_heads().values();
    const auto some = [&](const at::Tensor& x_TW, int64_t begin, int64_t width) {
      return x_TW.narrow(1, begin, width).unflatten(1, {keys, -1});
    };
    return {at::cat({some(apart.qkv_TC, 0, columns), some(apart.qkv_TC, columns, columns),
                     some(apart.qkv_TC, 2 * columns, values), some(apart.gate_TV, 0, values)},
                    2)
                .flatten(1),
            at::cat({some(apart.rate_TR, 0, heads), some(apart.rate_TR, heads, heads)}, 2).flatten(1),
            {}};
  }

  double rate_scale_;
};

}  // namespace

std::unique_ptr<const RecurrentRule> make_delta_rule(const model::DeltaRule& own, int tp,
                                                     RecurrentWeights weights, RecurrentWeights gradients) {
  return std::make_unique<const GatedDeltaRule>(own, tp, std::move(weights), std::move(gradients));
}

}  // namespace sluice::layers
