// Row names: S rows of this TP rank's shard, T all rows of the micro-batch, A those that the lane works on
// (head_exchange.h), X rows of margins; P pieces. Widths: H hidden; C this rank's, or lane's, queries, keys
// and values, V its values, N its value heads, R a number or two of each, for its rate and its decay.
#include "layers/recurrent_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>
#include <vector>

#include "layers/context.h"
#include "layers/frame.h"
#include "layers/head_exchange.h"
#include "layers/key_cache.h"
#include "layers/lane_recurrence.h"
#include "layers/recurrent_heads.h"
#include "model/roles.h"
#include "ops/device.h"
#include "ops/gated_norm.h"
#include "ops/linear.h"
#include "ops/recurrence.h"
#include "ops/short_convolution.h"
#include "ops/simd.h"

namespace sluice::layers {

namespace roles = model::roles;

namespace {

// What there is not is undefined. Vectors are by value head, biases by decay.
struct RecurrentWeights {
  Matrix rates_RH;  // of GLA [R, L]
  at::Tensor gate_VH;
  at::Tensor convolution_CW, convolution_bias_C;  // as the rows lie
  at::Tensor decay_N, step_bias_N;
  at::Tensor skip_N;       // of Mamba-2
  at::Tensor head_norm_D;  // of a head's width, of Mamba-2 of all heads'
};
RecurrentWeights recurrent_weights(const OperationShards& shards) {
  return {shards.matrix(roles::kRates),       shards.tensor(roles::kRecurrentGate),
          shards.tensor(roles::kConvolution), shards.vector(roles::kConvolutionBias),
          shards.vector(roles::kDecay),       shards.vector(roles::kStepBias),
          shards.vector(roles::kSkip),        shards.vector(roles::kHeadNorm)};
}

struct RecurrentState final : MixerState {
  at::Tensor qkv_AC;     // before the convolution
  at::Tensor narrow_TL;  // of GLA: what decays are made from
  at::Tensor rate_AR;    // numbers of rates and decays
  at::Tensor gate_TV;
  at::Tensor out_TV;      // o
  at::Tensor margin_XC;   // what other pieces have in margins; undefined: nothing
  at::Tensor begin_PHKD;  // states; undefined: zero

  std::vector<SavedRows> rows() override {
    return {{qkv_AC}, {narrow_TL}, {rate_AR}, {gate_TV}, {out_TV}, {margin_XC}, {begin_PHKD}};
  }
  std::vector<at::Tensor*> made_again() override { return {&qkv_AC, &narrow_TL, &rate_AR, &gate_TV}; }
};

// Of GLA's logarithms of decays, so that these begin close to 1.
constexpr double kDecayDivisor = 16;

// A vector over its Euclidean length, as published implementations round that off.
constexpr double kLengthEps = 1e-6;
at::Tensor inverse_length(const at::Tensor& x_AGK) {
  return at::rsqrt(x_AGK.square().sum(-1, /*keepdim=*/true) + kLengthEps);
}
at::Tensor unit_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& inverse) {
  const at::Tensor y = x * inverse;
  return (dy - y * (dy * y).sum(-1, /*keepdim=*/true)) * inverse;
}

// Of a convolution as it lies, what a lane computes with; and its gradients back.
at::Tensor taken(const at::Tensor& whole_CX, const std::vector<base::Interval>& rows) {
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

class RecurrentMixer final : public Mixer {
 public:
  enum Inner : uint8_t { kConvolution, kRates };  // rates: of GLA

  RecurrentMixer(const Site& site, const model::Part& part)
      : context_(site.context),
        position_(site.position),
        mixer_(part.mixer),
        own_(*model::states_of(part.mixer)),
        weights_(recurrent_weights(site.own_weights())),
        gradients_(recurrent_weights(site.own_gradients())) {}

  // Those in-products that the part has, in their order.
  static Weights roles_of(const model::Part& part) {
    const bool narrows = std::holds_alternative<model::Gla>(part.mixer);
    Weights all{.norm = roles::kRecurrentNorm, .out = roles::kRecurrentOut, .in = {}};
    for (const model::Weight& weight : part.weights) {
      if (weight.use == model::Use::kIn) all.in.push_back({weight.role, {}, {}, weight.adapts});
    }
    all.inner = {{roles::kConvolution, {}, {}, false}};
    if (narrows) all.inner.push_back({roles::kRates});
    return all;
  }

  Mixed forward(const MicroBatchLayout& layout, PartRows& rows, MixerStatePtr* kept) const override {
    auto state = std::make_unique<RecurrentState>();
    RecurrentState& saved = *state;
    first_half(layout, rows, saved);
    const bool stays = layout.cached.cache != nullptr;
    if (stays) {
      take_cached(layout.cached, saved);
    } else {
      saved.margin_XC = margins_of(context_.lanes, layout.recurrent, saved.qkv_AC);
    }
    {
      const Mix mixed = mix(layout, saved);
      const ops::Recurrence recurrence(mixed.input, layout.recurrent.chunks);
      if (!stays) saved.begin_PHKD = begin_states(context_.lanes, layout.recurrent, recurrence);
      at::Tensor end_PHKD;
      at::Tensor out_AHD = recurrence.forward(saved.begin_PHKD, stays ? &end_PHKD : nullptr);
      if (mixed.skip_N1.defined()) out_AHD.addcmul_(mixed.input.v_THD, mixed.skip_N1);
      const at::Tensor out_AV = out_AHD.flatten(1).to(saved.qkv_AC.scalar_type());
      if (stays) put_cached(layout, end_PHKD, mixed.marginal_RC);
      saved.out_TV = to_own_rows(layout, out_AV, &LaneHeads::outputs, saved.gate_TV.size(1));
    }
    Mixed result{gated_norm(saved.out_TV, saved.gate_TV)};
    if (kept != nullptr) *kept = std::move(state);
    return result;
  }
  Mixed again(const MicroBatchLayout&, PartRows& rows, MixerState& state) const override {
    auto& saved = static_cast<RecurrentState&>(state);
    const at::Tensor gate_TV =
        weights_.gate_VH.defined() ? rows.product(gate_product()) : project(rows).gate_TV;
    rows.release();
    return {gated_norm(saved.out_TV, gate_TV)};
  }
  void restore(const MicroBatchLayout& layout, PartRows& rows, MixerState& state) const override {
    first_half(layout, rows, static_cast<RecurrentState&>(state));
  }

  at::Tensor backward(const MicroBatchLayout& layout, MixerStatePtr state, Arriving from, PartRows& rows,
                      PartGradient& to) const override;

 private:
  // What the recurrence takes, and what it was made of.
  struct Mix {
    ops::RecurrenceInput input;
    at::Tensor marginal_RC;
    ops::ShortConvolution convolution;
    at::Tensor q_AGK, k_AGK;  // of a delta rule: before they are brought to their length
    at::Tensor number_AN;     // of decays, with their biases
    at::Tensor skip_N1;       // of Mamba-2, in float
    at::Tensor key_of_value;  // undefined: all key heads serve as many
  };

  RecurrentShape shape() const { return {own_, delta(), mamba()}; }
  LaneHeads all_heads() const { return {shape(), context_.parallel.tp, 1, 0}; }
  LaneHeads own_heads(const MicroBatchLayout& layout) const {
    const bool exchanges = layout.recurrent_heads.exchanges();
    return {shape(), context_.parallel.tp, exchanges ? layout.recurrent_heads.lanes() : 1,
            exchanges ? layout.recurrent_heads.lane : 0};
  }
  using Columns = std::vector<base::Interval> (LaneHeads::*)() const;
  HeadCut cut(const MicroBatchLayout& layout, Columns some) const {
    HeadCut all;
    for (int lane = 0; lane < layout.recurrent_heads.lanes(); ++lane)
      all.push_back((LaneHeads(shape(), context_.parallel.tp, layout.recurrent_heads.lanes(), lane).*some)());
    return all;
  }
  // Columns of this lane's rows as those of its head group's, and back; a column travels as a head.
  at::Tensor to_attended_rows(const MicroBatchLayout& layout, const at::Tensor& x_TW, Columns some) const {
    if (!layout.recurrent_heads.exchanges()) return x_TW;
    return to_heads(*context_.lanes, layout.recurrent_heads, cut(layout, some), x_TW.unsqueeze(2)).squeeze(2);
  }
  at::Tensor to_own_rows(const MicroBatchLayout& layout, const at::Tensor& y_AW, Columns some,
                         int64_t width) const {
    if (!layout.recurrent_heads.exchanges()) return y_AW;
    at::Tensor x_TW = at::empty({layout.rows, width}, y_AW.options());
    to_tokens(*context_.lanes, layout.recurrent_heads, cut(layout, some), y_AW.unsqueeze(2),
              x_TW.unsqueeze(2));
    return x_TW;
  }

  // What rows are projected to, or the gradients of that.
  struct Projected {
    at::Tensor qkv_TC, rate_TR, gate_TV, narrow_TL = {};
  };
  int gate_product() const { return 2; }
  Projected project(PartRows& rows) const {
    Projected made{.qkv_TC = rows.product(0)};
    if (mamba()) return parted_mamba(made.qkv_TC);
    if (narrows()) {
      made.narrow_TL = rows.product(1);
      made.rate_TR = times_transposed(made.narrow_TL, weights_.rates_RH);
    } else {
      made.rate_TR = rows.product(1);
    }
    if (by_key_head()) return parted(made);
    made.gate_TV = rows.product(gate_product());
    return made;
  }
  // Gate, values, keys, queries and steps side by side; and back.
  Projected parted_mamba(const at::Tensor& all_TX) const {
    const int64_t values = all_heads().value_columns(), keys = all_heads().key_columns();
    const auto some = [&](int64_t begin, int64_t width) { return all_TX.narrow(1, begin, width); };
    return {at::cat({some(2 * values + keys, keys), some(2 * values, keys), some(values, values)}, 1),
            some(2 * values + 2 * keys, all_heads().values()).contiguous(), some(0, values).contiguous()};
  }
  Projected joined_mamba(const Projected& apart) const {
    const int64_t values = all_heads().value_columns(), keys = all_heads().key_columns();
    const auto some = [&](int64_t begin, int64_t width) { return apart.qkv_TC.narrow(1, begin, width); };
    return {
        at::cat({apart.gate_TV, some(2 * keys, values), some(keys, keys), some(0, keys), apart.rate_TR}, 1),
        {},
        {}};
  }
  // Of rows by key head, which is how files have them: each kind of them together; and back.
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

  void first_half(const MicroBatchLayout& layout, PartRows& rows, RecurrentState& saved) const {
    Projected made = project(rows);
    rows.release();
    saved.qkv_AC = to_attended_rows(layout, made.qkv_TC, &LaneHeads::qkv);
    saved.narrow_TL = std::move(made.narrow_TL);
    saved.rate_AR = to_attended_rows(layout, made.rate_TR, &LaneHeads::rates);
    saved.gate_TV = std::move(made.gate_TV);
  }

  Mix mix(const MicroBatchLayout& layout, const RecurrentState& saved) const;
  // Takes gradients of what mix() made to those of what it was made of.
  struct MixedGradient {
    at::Tensor dqkv_AC, drate_AR;
  };
  MixedGradient mix_backward(const MicroBatchLayout& layout, const RecurrentState& saved, const Mix& mixed,
                             ops::RecurrenceGradient gradient,
                             const ops::ShortConvolution& dconvolution) const;

  // States and rows of margins of texts that go on; zeros of those that begin.
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
  void put_cached(const MicroBatchLayout& layout, const at::Tensor& end_PHKD,
                  const at::Tensor& marginal_RC) const {
    const CachedStates& states = layout.cached.cache->states_of(position_);
    at::Tensor state_LHKD = states.state_LHKD, last_LMC = states.last_LMC;
    state_LHKD.index_copy_(0, layout.cached.slot_P, end_PHKD);
    if (!convolves()) return;
    const at::Tensor last_XC = marginal_RC.index_select(0, layout.recurrent.rows.last_X);
    last_LMC.index_copy_(0, layout.cached.slot_P,
                         last_XC.view({end_PHKD.size(0), -1, last_XC.size(1)}).to(last_LMC.scalar_type()));
  }

  // Normed, and let through as far as gates open.
  at::Tensor gated_norm(const at::Tensor& out_TV, const at::Tensor& gate_TV) const {
    return mamba() ? ops::gated_group_norm(out_TV, gate_TV, weights_.head_norm_D, all_heads().keys(),
                                           own_.norm_eps)
                   : ops::gated_head_norm(out_TV, gate_TV, weights_.head_norm_D, own_.norm_eps);
  }
  ops::GatedNormGradient gated_norm_backward(const at::Tensor& da_TV, const at::Tensor& out_TV,
                                             const at::Tensor& gate_TV) const {
    const at::Tensor &weight = weights_.head_norm_D, &dweight = gradients_.head_norm_D;
    return mamba() ? ops::gated_group_norm_backward(da_TV, out_TV, gate_TV, weight, all_heads().keys(),
                                                    own_.norm_eps, dweight)
                   : ops::gated_head_norm_backward(da_TV, out_TV, gate_TV, weight, own_.norm_eps, dweight);
  }
  static at::Tensor wide(const at::Tensor& x) { return x.to(ops::accumulator_type(x)); }
  bool mamba() const { return std::holds_alternative<model::Mamba2>(mixer_); }
  bool delta() const { return std::holds_alternative<model::DeltaRule>(mixer_); }
  bool narrows() const { return std::holds_alternative<model::Gla>(mixer_); }
  bool by_key_head() const { return delta() && !weights_.gate_VH.defined(); }
  double rate_scale() const { return std::get<model::DeltaRule>(mixer_).rate_scale; }
  bool convolves() const { return own_.convolution > 1; }
  double query_scale() const { return 1 / std::sqrt(static_cast<double>(own_.key_width)); }

  const LayerContext& context_;
  int64_t position_;
  const model::Mixer& mixer_;
  const model::StateHeads& own_;
  RecurrentWeights weights_, gradients_;
};

RecurrentMixer::Mix RecurrentMixer::mix(const MicroBatchLayout& layout, const RecurrentState& saved) const {
  const LaneHeads heads = own_heads(layout);
  const base::Interval own = heads.value_heads();
  Mix mixed;
  at::Tensor all_AC;
  if (convolves()) {
    mixed.convolution.w_CW = taken(weights_.convolution_CW, heads.convolution());
    if (weights_.convolution_bias_C.defined())
      mixed.convolution.bias_C = taken(weights_.convolution_bias_C, heads.convolution());
    mixed.marginal_RC = ops::with_margins(layout.recurrent.rows, saved.qkv_AC, saved.margin_XC);
    all_AC = ops::short_convolution(layout.recurrent.rows, mixed.marginal_RC, mixed.convolution);
  } else {
    all_AC = wide(saved.qkv_AC);
  }
  const int64_t keys = heads.key_columns();
  const auto by_head = [&](int64_t begin, int64_t width, int64_t count, int64_t of_head) {
    return all_AC.narrow(1, begin, width).reshape({-1, count, of_head});
  };
  ops::RecurrenceInput& input = mixed.input;
  input.delta = delta();
  input.q_TGK = by_head(0, keys, heads.keys(), own_.key_width);
  input.k_TGK = by_head(keys, keys, heads.keys(), own_.key_width);
  if (delta()) {
    mixed.q_AGK = input.q_TGK;
    mixed.k_AGK = input.k_TGK;
    input.q_TGK = mixed.q_AGK * inverse_length(mixed.q_AGK).mul_(query_scale());
    input.k_TGK = mixed.k_AGK * inverse_length(mixed.k_AGK);
  } else if (!mamba()) {
    input.q_TGK = input.q_TGK * query_scale();
  }
  input.v_THD = by_head(2 * keys, heads.value_columns(), heads.values(), own_.value_width);
  if (!heads.even()) {
    mixed.key_of_value = ops::to_device(heads.key_of_value(), all_AC.device());
    input.q_TGK = input.q_TGK.index_select(1, mixed.key_of_value);
    input.k_TGK = input.k_TGK.index_select(1, mixed.key_of_value);
  }
  const auto part_of = [](const at::Tensor& x_N, base::Interval some) {
    return wide(x_N.narrow(0, some.begin, some.size()));
  };
  const at::Tensor numbers_AR = wide(saved.rate_AR);
  const base::Interval decays = heads.decays();
  mixed.number_AN = numbers_AR.narrow(1, numbers_AR.size(1) - decays.size(), decays.size()) +
                    part_of(weights_.step_bias_N, decays);
  if (!weights_.decay_N.defined()) {
    input.log_decay = at::log_sigmoid(mixed.number_AN).div_(kDecayDivisor).unflatten(1, {own.size(), -1});
    return mixed;
  }
  const at::Tensor step_AN = at::softplus(mixed.number_AN);
  input.rate_TH = mamba() ? step_AN : at::sigmoid(numbers_AR.narrow(1, 0, own.size())).mul_(rate_scale());
  input.log_decay = step_AN * part_of(weights_.decay_N, own).exp().neg_();
  if (weights_.skip_N.defined()) mixed.skip_N1 = part_of(weights_.skip_N, own).unsqueeze(1);
  return mixed;
}

RecurrentMixer::MixedGradient RecurrentMixer::mix_backward(const MicroBatchLayout& layout,
                                                           const RecurrentState& saved, const Mix& mixed,
                                                           ops::RecurrenceGradient gradient,
                                                           const ops::ShortConvolution& dconvolution) const {
  const LaneHeads heads = own_heads(layout);
  const base::Interval own = heads.value_heads();
  const ops::RecurrenceInput& input = mixed.input;
  const auto add = [&](const at::Tensor& to_N, base::Interval some, const at::Tensor& d_AN) {
    if (to_N.defined()) to_N.narrow(0, some.begin, some.size()).add_(d_AN.sum(0));
  };
  at::Tensor dnumber_AN;
  if (!weights_.decay_N.defined()) {
    dnumber_AN = gradient.dlog_decay.flatten(1) * at::sigmoid(mixed.number_AN.neg()).div_(kDecayDivisor);
  } else {
    add(gradients_.decay_N, own, gradient.dlog_decay * input.log_decay);
    const at::Tensor slope_N =
        weights_.decay_N.narrow(0, own.begin, own.size()).to(mixed.number_AN.scalar_type()).exp().neg_();
    at::Tensor dstep_AN = gradient.dlog_decay * slope_N;
    if (mamba()) dstep_AN.add_(gradient.drate_TH);
    dnumber_AN = dstep_AN.mul_(at::sigmoid(mixed.number_AN));
  }
  add(gradients_.step_bias_N, heads.decays(), dnumber_AN);

  const auto of_key_heads = [&](const at::Tensor& d_AHK) {
    if (!mixed.key_of_value.defined()) return d_AHK;
    return at::zeros({d_AHK.size(0), heads.keys(), d_AHK.size(2)}, d_AHK.options())
        .index_add_(1, mixed.key_of_value, d_AHK);
  };
  at::Tensor dq = of_key_heads(gradient.dq_TGK), dk = of_key_heads(gradient.dk_TGK), drate_AR = dnumber_AN;
  if (!mamba()) dq = dq.mul(query_scale());
  if (delta()) {
    const at::Tensor open_AN = input.rate_TH / rate_scale();
    drate_AR = at::cat({gradient.drate_TH * input.rate_TH * (1 - open_AN), dnumber_AN}, 1);
    dq = unit_backward(dq, mixed.q_AGK, inverse_length(mixed.q_AGK));
    dk = unit_backward(dk, mixed.k_AGK, inverse_length(mixed.k_AGK));
  }
  const at::Tensor dall_AC = at::cat({dq.flatten(1), dk.flatten(1), gradient.dv_THD.flatten(1)}, 1);
  const at::ScalarType type = saved.qkv_AC.scalar_type();
  if (!convolves()) return {dall_AC.to(type), drate_AR.to(type)};
  const ops::MarginRows& rows = layout.recurrent.rows;
  const at::Tensor drows_RC =
      ops::short_convolution_backward(rows, dall_AC, mixed.marginal_RC, mixed.convolution, dconvolution);
  const at::Tensor dqkv_AC = drows_RC.index_select(0, rows.own_T);
  if (layout.recurrent.margins.any())
    margins_backward(context_.lanes, layout.recurrent, drows_RC.index_select(0, rows.margin_X), dqkv_AC);
  return {dqkv_AC.to(type), drate_AR.to(type)};
}

at::Tensor RecurrentMixer::backward(const MicroBatchLayout& layout, MixerStatePtr state, Arriving from,
                                    PartRows&, PartGradient& to) const {
  auto& saved = static_cast<RecurrentState&>(*state);
  // Through the gate and the heads' norms.
  at::Tensor a_TV;
  if (to.wants_out()) a_TV = gated_norm(saved.out_TV, saved.gate_TV);
  const ops::GatedNormGradient gated = gated_norm_backward(from.da_TA, saved.out_TV, saved.gate_TV);
  from.da_TA.reset();
  saved.out_TV.reset();
  saved.gate_TV.reset();

  // Through the recurrence.
  const at::Tensor dout_AV = to_attended_rows(layout, gated.dx_TV, &LaneHeads::outputs);
  MixedGradient gradient;
  {
    const Mix mixed = mix(layout, saved);
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
        zeros_for(mixed.convolution.w_CW, gradients_.convolution_CW),
        zeros_for(mixed.convolution.bias_C, gradients_.convolution_bias_C)};
    if (mixed.skip_N1.defined()) {
      const base::Interval heads = own_heads(layout).value_heads();
      const at::Tensor wide_AHD = wide(dout_AHD);
      of_input.dv_THD.addcmul_(wide_AHD, mixed.skip_N1);
      if (gradients_.skip_N.defined())
        gradients_.skip_N.narrow(0, heads.begin, heads.size())
            .add_((wide_AHD * mixed.input.v_THD).sum(at::IntArrayRef({0, 2})));
    }
    gradient = mix_backward(layout, saved, mixed, std::move(of_input), dconvolution);
    const std::vector<base::Interval> own_rows = own_heads(layout).convolution();
    if (dconvolution.bias_C.defined()) add_back(dconvolution.bias_C, own_rows, gradients_.convolution_bias_C);
    if (dconvolution.w_CW.defined()) {
      const at::Tensor whole_CW = at::zeros(gradients_.convolution_CW.sizes(), dconvolution.w_CW.options());
      add_back(dconvolution.w_CW, own_rows, whole_CW);
      to.made(kConvolution, whole_CW);
    }
  }
  const LaneHeads all = all_heads();
  Projected d{
      to_own_rows(layout, gradient.dqkv_AC, &LaneHeads::qkv, 2 * all.key_columns() + all.value_columns()),
      to_own_rows(layout, gradient.drate_AR, &LaneHeads::rates, own_.numbers * all.values()), gated.dgate_TV};
  gradient = {};
  if (mamba()) d = joined_mamba(d);
  if (by_key_head()) d = joined(d);
  to.add(0, std::move(d.qkv_TC));
  if (narrows()) {
    to.add(1, times(d.rate_TR, weights_.rates_RH));
    if (gradients_.rates_RH.wanted()) {
      const int narrow = to.pending().keep(std::move(saved.narrow_TL));
      to.inner_product(kRates, to.pending().keep(std::move(d.rate_TR)), {narrow});
    }
  } else if (d.rate_TR.defined()) {
    to.add(1, std::move(d.rate_TR));
  }
  if (d.gate_TV.defined()) to.add(gate_product(), std::move(d.gate_TV));
  return a_TV;
}

}  // namespace

std::unique_ptr<const Part> make_recurrent(const Site& site, const model::Part& part) {
  return make_framed(site, part, RecurrentMixer::roles_of(part),
                     std::make_unique<RecurrentMixer>(site, part));
}

}  // namespace sluice::layers
