// Row names: S rows of this TP rank's shard, T all rows of the micro-batch, A those that the lane works on
// (head_exchange.h), X halo rows; P pieces. Widths: H hidden; C queries, keys and values of this rank or
// lane, V its values, N its value heads, R its numbers for rates and decays.
#include "layers/recurrent_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "layers/context.h"
#include "layers/frame.h"
#include "layers/head_exchange.h"
#include "layers/kv_cache.h"
#include "layers/lane_recurrence.h"
#include "layers/recurrent_heads.h"
#include "layers/recurrent_rule.h"
#include "model/roles.h"
#include "ops/device.h"
#include "ops/linear.h"
#include "ops/recurrence.h"
#include "ops/short_convolution.h"
#include "ops/simd.h"

namespace sluice::layers {

namespace roles = model::roles;

namespace {

RecurrentWeights recurrent_weights(const OperationShards& shards) {
  return {shards.matrix(roles::kRates),       shards.tensor(roles::kRecurrentGate),
          shards.tensor(roles::kConvolution), shards.vector(roles::kConvolutionBias),
          shards.vector(roles::kDecay),       shards.vector(roles::kStepBias),
          shards.vector(roles::kSkip),        shards.vector(roles::kHeadNorm)};
}

struct RecurrentState final : MixerState {
  at::Tensor qkv_AC;     // before the convolution
  at::Tensor narrow_TL;  // GLA and KDA: makes decays, and gates
  at::Tensor rate_AR;    // numbers of rates and decays
  at::Tensor gate_TV;
  at::Tensor out_TV;      // o
  at::Tensor margin_XC;   // halo rows from other pieces; undefined: none
  at::Tensor begin_PHKD;  // states; undefined: zero

  std::vector<SavedRows> rows() override {
    return {{qkv_AC}, {narrow_TL}, {rate_AR}, {gate_TV}, {out_TV}, {margin_XC}, {begin_PHKD}};
  }
  std::vector<at::Tensor*> made_again() override { return {&qkv_AC, &narrow_TL, &rate_AR, &gate_TV}; }
};

// The rows of a convolution, in the files' order, with which a lane computes; and their gradients back.
at::Tensor rows_taken(const at::Tensor& whole_CX, const std::vector<base::Interval>& rows) {
  std::vector<at::Tensor> parts;
  for (const base::Interval& each : rows) parts.push_back(whole_CX.narrow(0, each.begin, each.size()));
  return at::cat(parts);
}
void add_back(const at::Tensor& part_CX, const std::vector<base::Interval>& rows,
              const at::Tensor& whole_CX) {
  int64_t row = 0;
  for (const base::Interval& each : rows) {
    whole_CX.narrow(0, each.begin, each.size()).add_(part_CX.narrow(0, row, each.size()));
    row += each.size();
  }
}

std::unique_ptr<const RecurrentRule> make_rule(const Site& site, const model::Mixer& mixer) {
  const int tp = site.context.parallel.tp;
  RecurrentWeights weights = recurrent_weights(site.own_weights());
  RecurrentWeights gradients = recurrent_weights(site.own_gradients());
  if (const auto* const delta = std::get_if<model::DeltaRule>(&mixer))
    return make_delta_rule(*delta, tp, std::move(weights), std::move(gradients));
  if (const auto* const mamba = std::get_if<model::Mamba2>(&mixer))
    return make_mamba2_rule(*mamba, tp, std::move(weights), std::move(gradients));
  if (const auto* const kda = std::get_if<model::Kda>(&mixer))
    return make_kda_rule(*kda, tp, std::move(weights), std::move(gradients));
  return make_gla_rule(std::get<model::Gla>(mixer), tp, std::move(weights), std::move(gradients));
}

// The in-products that the part has, in their order.
Weights recurrent_roles(const model::Part& part) {
  Weights all{.out = roles::kRecurrentOut, .in = {}};
  for (const model::Weight& weight : part.weights) {
    if (weight.use == model::Use::kIn) all.in.push_back({weight.role, {}, {}, weight.adapts});
  }
  all.inner = {{roles::kConvolution, {}, {}, false}};
  for (const model::Weight& weight : part.weights) {
    if (weight.use == model::Use::kInner) all.inner.push_back({weight.role});
  }
  return all;
}

class RecurrentMixer final : public Mixer {
 public:
  RecurrentMixer(const Site& site, const model::Part& part)
      : context_(site.context),
        position_(site.position),
        rule_(make_rule(site, part.mixer)),
        own_(rule_->own()) {}

  Mixed forward(const RowLayout& layout, PartRows& rows, MixerStatePtr* kept) const override {
    auto state = std::make_unique<RecurrentState>();
    RecurrentState& saved = *state;
    first_half(layout, rows, saved);
    const bool stays = layout.cached.cache != nullptr;
    if (stays) {
      take_cached(layout.cached, saved);
    } else {
      saved.margin_XC = halos_of(context_.lanes, layout.recurrent, saved.qkv_AC);
    }
    {
      const RecurrentMix mixed = mix(layout, saved);
      const ops::Recurrence recurrence(mixed.input, layout.recurrent.chunks);
      if (!stays) saved.begin_PHKD = begin_states(context_.lanes, layout.recurrent, recurrence);
      at::Tensor end_PHKD;
      at::Tensor out_AHD = recurrence.forward(saved.begin_PHKD, stays ? &end_PHKD : nullptr);
      rule_->add_skipped(mixed, out_AHD);
      const at::Tensor out_AV = out_AHD.flatten(1).to(saved.qkv_AC.scalar_type());
      if (stays) put_cached(layout, end_PHKD, mixed.marginal_RC);
      saved.out_TV = to_own_rows(layout, out_AV, &LaneHeads::outputs, saved.gate_TV.size(1));
    }
    Mixed result{rule_->gated_norm(saved.out_TV, saved.gate_TV)};
    if (kept != nullptr) *kept = std::move(state);
    return result;
  }
  Mixed again(const RowLayout&, PartRows& rows, MixerState& state) const override {
    const at::Tensor gate_TV = rule_->gate(rows);
    rows.release();
    return {rule_->gated_norm(static_cast<RecurrentState&>(state).out_TV, gate_TV)};
  }
  void restore(const RowLayout& layout, PartRows& rows, MixerState& state) const override {
    first_half(layout, rows, static_cast<RecurrentState&>(state));
  }

  at::Tensor backward(const RowLayout& layout, MixerStatePtr state, Arriving from, PartRows& rows,
                      PartGradient& to) const override;

 private:
  LaneHeads own_heads(const RowLayout& layout) const {
    const bool exchanges = layout.recurrent_heads.exchanges();
    return rule_->heads_of(exchanges ? layout.recurrent_heads.lanes() : 1,
                           exchanges ? layout.recurrent_heads.lane : 0);
  }
  using Columns = std::vector<base::Interval> (LaneHeads::*)() const;
  HeadCut cut(const RowLayout& layout, Columns some) const {
    HeadCut all;
    for (int lane = 0; lane < layout.recurrent_heads.lanes(); ++lane)
      all.push_back((rule_->heads_of(layout.recurrent_heads.lanes(), lane).*some)());
    return all;
  }
  // From this lane's rows to its head group's, and back; a column travels as a head does.
  at::Tensor to_attended_rows(const RowLayout& layout, const at::Tensor& x_TW, Columns some) const {
    if (!layout.recurrent_heads.exchanges()) return x_TW;
    return to_heads(*context_.lanes, layout.recurrent_heads, cut(layout, some), x_TW.unsqueeze(2)).squeeze(2);
  }
  at::Tensor to_own_rows(const RowLayout& layout, const at::Tensor& y_AW, Columns some, int64_t width) const {
    if (!layout.recurrent_heads.exchanges()) return y_AW;
    at::Tensor x_TW = at::empty({layout.rows, width}, y_AW.options());
    to_tokens(*context_.lanes, layout.recurrent_heads, cut(layout, some), y_AW.unsqueeze(2),
              x_TW.unsqueeze(2));
    return x_TW;
  }

  void first_half(const RowLayout& layout, PartRows& rows, RecurrentState& saved) const {
    Projected made = rule_->project(rows);
    rows.release();
    saved.qkv_AC = to_attended_rows(layout, made.qkv_TC, &LaneHeads::qkv);
    saved.narrow_TL = std::move(made.narrow_TL);
    saved.rate_AR = to_attended_rows(layout, made.rate_TR, &LaneHeads::rates);
    saved.gate_TV = std::move(made.gate_TV);
  }

  RecurrentMix mix(const RowLayout& layout, const RecurrentState& saved) const;
  struct MixedGradient {
    at::Tensor dqkv_AC, drate_AR;
  };
  // Takes the gradient of the recurrence's result to the gradients of its operands.
  MixedGradient through_recurrence(const RowLayout& layout, const RecurrentState& saved,
                                   const at::Tensor& dout_AV, PartGradient& to) const;
  // Takes the gradients of mix()'s results to those of its operands.
  MixedGradient mix_backward(const RowLayout& layout, const RecurrentState& saved, const RecurrentMix& mixed,
                             ops::RecurrenceGradient gradient,
                             const ops::ShortConvolution& dconvolution) const;
  at::Tensor convolution_backward(const RowLayout& layout, const RecurrentMix& mixed,
                                  const at::Tensor& dall_AC, const ops::ShortConvolution& dconvolution) const;
  // Adds a lane's part of the convolution's gradients.
  void add_convolution(const RowLayout& layout, const ops::ShortConvolution& dconvolution,
                       PartGradient& to) const;

  // States and halo rows of sequences that continue; zeros for new ones.
  void take_cached(const CachedRows& cached, RecurrentState& saved) const {
    const CachedStates& states = cached.cache->states_of(position_);
    const auto taken = [&](const at::Tensor& of_slots) {
      const at::Tensor none = cached.goes_on_P.eq(0).view({-1, 1, 1});
      const at::Tensor of_pieces = of_slots.index_select(0, cached.slot_P);
      return of_pieces.masked_fill(of_slots.dim() == 4 ? none.unsqueeze(3) : none, 0);
    };
    saved.begin_PHKD = taken(states.state_LHKD);
    saved.margin_XC = taken(states.last_LMC).flatten(0, 1);
  }
  void put_cached(const RowLayout& layout, const at::Tensor& end_PHKD, const at::Tensor& marginal_RC) const {
    const CachedStates& states = layout.cached.cache->states_of(position_);
    at::Tensor state_LHKD = states.state_LHKD, last_LMC = states.last_LMC;
    state_LHKD.index_copy_(0, layout.cached.slot_P, end_PHKD);
    if (!convolves()) return;
    const at::Tensor last_XC = marginal_RC.index_select(0, layout.recurrent.rows.last_X);
    last_LMC.index_copy_(0, layout.cached.slot_P,
                         last_XC.view({end_PHKD.size(0), -1, last_XC.size(1)}).to(last_LMC.scalar_type()));
  }

  static at::Tensor wide(const at::Tensor& x) { return x.to(ops::accumulator_type(x)); }
  bool convolves() const { return own_.convolution > 1; }
  const RecurrentWeights& weights() const { return rule_->weights(); }
  const RecurrentWeights& gradients() const { return rule_->gradients(); }

  const LayerContext& context_;
  int64_t position_;
  std::unique_ptr<const RecurrentRule> rule_;
  const model::StateHeads& own_;
};

RecurrentMix RecurrentMixer::mix(const RowLayout& layout, const RecurrentState& saved) const {
  const LaneHeads heads = own_heads(layout);
  RecurrentMix mixed;
  at::Tensor all_AC;
  if (convolves()) {
    mixed.convolution.w_CW = rows_taken(weights().convolution_CW, heads.convolution());
    if (weights().convolution_bias_C.defined())
      mixed.convolution.bias_C = rows_taken(weights().convolution_bias_C, heads.convolution());
    mixed.marginal_RC = ops::with_halos(layout.recurrent.rows, saved.qkv_AC, saved.margin_XC);
    all_AC = ops::short_convolution(layout.recurrent.rows, mixed.marginal_RC, mixed.convolution);
  } else {
    all_AC = wide(saved.qkv_AC);
  }
  const int64_t keys = heads.key_columns();
  const auto by_head = [&](int64_t begin, int64_t width, int64_t count, int64_t of_head) {
    return all_AC.narrow(1, begin, width).reshape({-1, count, of_head});
  };
  ops::RecurrenceInput& input = mixed.input;
  input.q_TGK = by_head(0, keys, heads.keys(), own_.key_width);
  input.k_TGK = by_head(keys, keys, heads.keys(), own_.key_width);
  rule_->scale_keys(mixed);
  input.v_THD = by_head(2 * keys, heads.value_columns(), heads.values(), own_.value_width);
  if (!heads.even()) {
    mixed.key_of_value = ops::to_device(heads.key_of_value(), all_AC.device());
    input.q_TGK = input.q_TGK.index_select(1, mixed.key_of_value);
    input.k_TGK = input.k_TGK.index_select(1, mixed.key_of_value);
  }
  const base::Interval decays = heads.decays();
  const at::Tensor numbers_AR = wide(saved.rate_AR);
  mixed.number_AN = numbers_AR.narrow(1, numbers_AR.size(1) - decays.size(), decays.size()) +
                    wide(weights().step_bias_N.narrow(0, decays.begin, decays.size()));
  rule_->set_rates(heads, numbers_AR, mixed);
  return mixed;
}

at::Tensor RecurrentMixer::convolution_backward(const RowLayout& layout, const RecurrentMix& mixed,
                                                const at::Tensor& dall_AC,
                                                const ops::ShortConvolution& dconvolution) const {
  if (!convolves()) return dall_AC;
  const ops::HaloRows& rows = layout.recurrent.rows;
  const at::Tensor drows_RC =
      ops::short_convolution_backward(rows, dall_AC, mixed.marginal_RC, mixed.convolution, dconvolution);
  const at::Tensor dqkv_AC = drows_RC.index_select(0, rows.own_T);
  if (layout.recurrent.halos.any())
    halos_backward(context_.lanes, layout.recurrent, drows_RC.index_select(0, rows.halo_X), dqkv_AC);
  return dqkv_AC;
}

RecurrentMixer::MixedGradient RecurrentMixer::mix_backward(const RowLayout& layout,
                                                           const RecurrentState& saved,
                                                           const RecurrentMix& mixed,
                                                           ops::RecurrenceGradient gradient,
                                                           const ops::ShortConvolution& dconvolution) const {
  const LaneHeads heads = own_heads(layout);
  const RatesGradient rates = rule_->rates_backward(heads, mixed, gradient);
  add_sums(gradients().step_bias_N, heads.decays(), rates.dnumber_AN);
  const auto of_key_heads = [&](const at::Tensor& d_AHK) {
    if (!mixed.key_of_value.defined()) return d_AHK;
    return at::zeros({d_AHK.size(0), heads.keys(), d_AHK.size(2)}, d_AHK.options())
        .index_add_(1, mixed.key_of_value, d_AHK);
  };
  at::Tensor dq = of_key_heads(gradient.dq_TGK), dk = of_key_heads(gradient.dk_TGK);
  rule_->scale_keys_backward(mixed, dq, dk);
  const at::Tensor dall_AC = at::cat({dq.flatten(1), dk.flatten(1), gradient.dv_THD.flatten(1)}, 1);
  const at::ScalarType type = saved.qkv_AC.scalar_type();
  return {convolution_backward(layout, mixed, dall_AC, dconvolution).to(type), rates.drate_AR.to(type)};
}

void RecurrentMixer::add_convolution(const RowLayout& layout, const ops::ShortConvolution& dconvolution,
                                     PartGradient& to) const {
  const std::vector<base::Interval> rows = own_heads(layout).convolution();
  if (dconvolution.bias_C.defined()) add_back(dconvolution.bias_C, rows, gradients().convolution_bias_C);
  if (!dconvolution.w_CW.defined()) return;
  const at::Tensor whole_CW = at::zeros(gradients().convolution_CW.sizes(), dconvolution.w_CW.options());
  add_back(dconvolution.w_CW, rows, whole_CW);
  to.made(RecurrentRule::kConvolution, whole_CW);
}

RecurrentMixer::MixedGradient RecurrentMixer::through_recurrence(const RowLayout& layout,
                                                                 const RecurrentState& saved,
                                                                 const at::Tensor& dout_AV,
                                                                 PartGradient& to) const {
  const RecurrentMix mixed = mix(layout, saved);
  const at::Tensor dout_AHD = dout_AV.unflatten(1, {-1, own_.value_width});
  ops::RecurrenceGradient of_input;
  {
    const ops::Recurrence recurrence(mixed.input, layout.recurrent.chunks);
    const at::Tensor dend_PHKD = end_gradients(context_.lanes, layout.recurrent, recurrence, dout_AHD);
    of_input = recurrence.backward(dout_AHD, saved.begin_PHKD, dend_PHKD);
  }
  const auto zeros_for = [&](const at::Tensor& own, const at::Tensor& wanted) {
    return wanted.defined() ? at::zeros(own.sizes(), mixed.marginal_RC.options()) : at::Tensor();
  };
  const ops::ShortConvolution dconvolution{
      zeros_for(mixed.convolution.w_CW, gradients().convolution_CW),
      zeros_for(mixed.convolution.bias_C, gradients().convolution_bias_C)};
  rule_->skip_backward(own_heads(layout), mixed, dout_AHD, of_input.dv_THD);
  MixedGradient gradient = mix_backward(layout, saved, mixed, std::move(of_input), dconvolution);
  add_convolution(layout, dconvolution, to);
  return gradient;
}

at::Tensor RecurrentMixer::backward(const RowLayout& layout, MixerStatePtr state, Arriving from, PartRows&,
                                    PartGradient& to) const {
  auto& saved = static_cast<RecurrentState&>(*state);
  at::Tensor a_TV;
  if (to.wants_out()) a_TV = rule_->gated_norm(saved.out_TV, saved.gate_TV);
  const ops::GatedNormGradient gated = rule_->gated_norm_backward(from.da_TA, saved.out_TV, saved.gate_TV);
  from.da_TA.reset();
  saved.out_TV.reset();
  saved.gate_TV.reset();
  MixedGradient gradient =
      through_recurrence(layout, saved, to_attended_rows(layout, gated.dx_TV, &LaneHeads::outputs), to);
  const LaneHeads all = rule_->all_heads();
  Projected d{
      to_own_rows(layout, gradient.dqkv_AC, &LaneHeads::qkv, 2 * all.key_columns() + all.value_columns()),
      to_own_rows(layout, gradient.drate_AR, &LaneHeads::rates, own_.numbers * all.values()), gated.dgate_TV};
  gradient = {};
  rule_->add_gradients(std::move(d), std::move(saved.narrow_TL), to);
  return a_TV;
}

}  // namespace

std::unique_ptr<const Part> make_recurrent(const Site& site, const model::Part& part) {
  return make_framed(site, part, recurrent_roles(part), std::make_unique<RecurrentMixer>(site, part));
}

}  // namespace sluice::layers
