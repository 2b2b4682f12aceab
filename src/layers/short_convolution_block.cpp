// Row names: S rows of this TP rank's shard, T all rows of the micro-batch, A those that the lane works on
// (head_exchange.h), R with halo rows, X halo rows; P pieces. Widths: C channels of this rank or lane.
#include "layers/short_convolution_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>
#include <vector>

#include "layers/context.h"
#include "layers/frame.h"
#include "layers/head_exchange.h"
#include "layers/kv_cache.h"
#include "layers/lane_recurrence.h"
#include "layers/recurrent_heads.h"
#include "model/roles.h"
#include "ops/linear_convolution.h"
#include "ops/short_convolution.h"

namespace sluice::layers {

namespace roles = model::roles;

namespace {

ops::ShortConvolution convolution_of(const OperationShards& shards) {
  return {shards.tensor(roles::kConvolution), shards.vector(roles::kConvolutionBias)};
}

struct ShortConvolutionState final : MixerState {
  at::Tensor product_TX;  // b, c and v side by side
  at::Tensor made_TC;     // result of the convolution
  at::Tensor margin_XC;   // halo rows from other pieces; undefined: none

  std::vector<SavedRows> rows() override { return {{product_TX}, {made_TC}, {margin_XC}}; }
  std::vector<at::Tensor*> made_again() override { return {&product_TX}; }
};

class ShortConvolutionMixer final : public Mixer {
 public:
  enum Inner : uint8_t { kConvolution };

  ShortConvolutionMixer(const Site& site, const model::ShortConvolution& own)
      : context_(site.context),
        position_(site.position),
        own_(own.heads),
        weights_(convolution_of(site.own_weights())),
        gradients_(convolution_of(site.own_gradients())) {}

  Mixed forward(const RowLayout& layout, PartRows& rows, MixerStatePtr* kept) const override {
    auto state = std::make_unique<ShortConvolutionState>();
    state->product_TX = rows.product(0);
    rows.release();
    const at::Tensor input_AC = to_attended_rows(layout, input_of(state->product_TX));
    const bool stays = layout.cached.cache != nullptr;
    state->margin_XC =
        stays ? cached_margins(layout.cached) : halos_of(context_.lanes, layout.recurrent, input_AC);
    const at::Tensor marginal_RC = ops::with_halos(layout.recurrent.rows, input_AC, state->margin_XC);
    const at::Tensor made_AC =
        ops::linear_convolution(layout.recurrent.rows, marginal_RC, own_channels(layout, weights_))
            .to(input_AC.scalar_type());
    if (stays) put_cached(layout, marginal_RC);
    state->made_TC = to_own_rows(layout, made_AC);
    Mixed result{output_of(*state)};
    if (kept != nullptr) *kept = std::move(state);
    return result;
  }
  Mixed again(const RowLayout&, PartRows& rows, MixerState& saved) const override {
    auto& own = static_cast<ShortConvolutionState&>(saved);
    if (own.product_TX.defined()) return {output_of(own)};
    ShortConvolutionState made;
    made.product_TX = rows.product(0);
    rows.release();
    made.made_TC = own.made_TC;
    return {output_of(made)};
  }
  void restore(const RowLayout&, PartRows& rows, MixerState& saved) const override {
    static_cast<ShortConvolutionState&>(saved).product_TX = rows.product(0);
    rows.release();
  }

  at::Tensor backward(const RowLayout& layout, MixerStatePtr state, Arriving from, PartRows&,
                      PartGradient& to) const override {
    auto& saved = static_cast<ShortConvolutionState&>(*state);
    at::Tensor a_TC;
    if (to.wants_out()) a_TC = output_of(saved);
    const at::Tensor dgate_TC = from.da_TA * saved.made_TC;
    const at::Tensor dmade_TC = std::move(from.da_TA).mul_(part(saved.product_TX, 1));
    saved.made_TC.reset();
    const at::Tensor dinput_TC =
        to_own_rows(layout, through_convolution(layout, saved, to_attended_rows(layout, dmade_TC), to));
    const at::Tensor b_TC = part(saved.product_TX, 0), v_TC = part(saved.product_TX, 2);
    to.add(0, at::cat({dinput_TC * v_TC, dgate_TC, dinput_TC * b_TC}, 1));
    return a_TC;
  }

 private:
  int64_t channels() const { return own_.values() / context_.parallel.tp; }
  at::Tensor part(const at::Tensor& product_TX, int64_t which) const {
    return product_TX.narrow(1, which * channels(), channels());
  }
  at::Tensor input_of(const at::Tensor& product_TX) const {
    return part(product_TX, 0) * part(product_TX, 2);
  }
  at::Tensor output_of(const ShortConvolutionState& saved) const {
    return part(saved.product_TX, 1) * saved.made_TC;
  }

  LaneHeads heads_of(int lanes, int lane) const { return {{own_}, context_.parallel.tp, lanes, lane}; }
  HeadCut cut(const RowLayout& layout) const {
    HeadCut all;
    for (int lane = 0; lane < layout.recurrent_heads.lanes(); ++lane)
      all.push_back(heads_of(layout.recurrent_heads.lanes(), lane).outputs());
    return all;
  }
  // From this lane's rows to its head group's, and back; a column travels as a head does.
  at::Tensor to_attended_rows(const RowLayout& layout, const at::Tensor& x_TC) const {
    if (!layout.recurrent_heads.exchanges()) return x_TC;
    return to_heads(*context_.lanes, layout.recurrent_heads, cut(layout), x_TC.unsqueeze(2)).squeeze(2);
  }
  at::Tensor to_own_rows(const RowLayout& layout, const at::Tensor& y_AC) const {
    if (!layout.recurrent_heads.exchanges()) return y_AC;
    at::Tensor x_TC = at::empty({layout.rows, channels()}, y_AC.options());
    to_tokens(*context_.lanes, layout.recurrent_heads, cut(layout), y_AC.unsqueeze(2), x_TC.unsqueeze(2));
    return x_TC;
  }

  base::Interval own_channels(const RowLayout& layout) const {
    const bool exchanges = layout.recurrent_heads.exchanges();
    return heads_of(exchanges ? layout.recurrent_heads.lanes() : 1,
                    exchanges ? layout.recurrent_heads.lane : 0)
        .outputs()
        .front();
  }
  ops::ShortConvolution own_channels(const RowLayout& layout, const ops::ShortConvolution& all) const {
    const base::Interval own = own_channels(layout);
    const auto some = [&](const at::Tensor& of_all) {
      return of_all.defined() ? of_all.narrow(0, own.begin, own.size()) : of_all;
    };
    return {some(all.w_CW), some(all.bias_C)};
  }

  // The gradient of the convolution's input rows; adds the convolution's own gradients.
  at::Tensor through_convolution(const RowLayout& layout, const ShortConvolutionState& saved,
                                 const at::Tensor& dmade_AC, PartGradient& to) const {
    const ops::HaloRows& rows = layout.recurrent.rows;
    const at::Tensor input_AC = to_attended_rows(layout, input_of(saved.product_TX));
    const at::Tensor marginal_RC = ops::with_halos(rows, input_AC, saved.margin_XC);
    const ops::ShortConvolution weights = own_channels(layout, weights_);
    const auto zeros_for = [&](const at::Tensor& own, const at::Tensor& wanted) {
      return wanted.defined() ? at::zeros(own.sizes(), marginal_RC.options()) : at::Tensor();
    };
    const ops::ShortConvolution gradients{zeros_for(weights.w_CW, gradients_.w_CW),
                                          zeros_for(weights.bias_C, gradients_.bias_C)};
    const at::Tensor drows_RC = ops::linear_convolution_backward(rows, dmade_AC.to(marginal_RC.scalar_type()),
                                                                 marginal_RC, weights, gradients);
    add_convolution(layout, gradients, to);
    const at::Tensor dinput_AC = drows_RC.index_select(0, rows.own_T);
    if (layout.recurrent.halos.any())
      halos_backward(context_.lanes, layout.recurrent, drows_RC.index_select(0, rows.halo_X), dinput_AC);
    return dinput_AC.to(input_AC.scalar_type());
  }
  void add_convolution(const RowLayout& layout, const ops::ShortConvolution& gradients,
                       PartGradient& to) const {
    const base::Interval own = own_channels(layout);
    if (gradients.bias_C.defined()) gradients_.bias_C.narrow(0, own.begin, own.size()).add_(gradients.bias_C);
    if (!gradients.w_CW.defined()) return;
    const at::Tensor whole_CW = at::zeros(gradients_.w_CW.sizes(), gradients.w_CW.options());
    whole_CW.narrow(0, own.begin, own.size()).copy_(gradients.w_CW);
    to.made(kConvolution, whole_CW);
  }

  // Halo rows of sequences that continue; zeros for new ones.
  at::Tensor cached_margins(const CachedRows& cached) const {
    const at::Tensor none_P11 = cached.goes_on_P.eq(0).view({-1, 1, 1});
    return cached.cache->states_of(position_)
        .last_LMC.index_select(0, cached.slot_P)
        .masked_fill(none_P11, 0)
        .flatten(0, 1);
  }
  void put_cached(const RowLayout& layout, const at::Tensor& marginal_RC) const {
    at::Tensor last_LMC = layout.cached.cache->states_of(position_).last_LMC;
    const at::Tensor last_XC = marginal_RC.index_select(0, layout.recurrent.rows.last_X);
    last_LMC.index_copy_(
        0, layout.cached.slot_P,
        last_XC.view({layout.cached.slot_P.size(0), -1, last_XC.size(1)}).to(last_LMC.scalar_type()));
  }

  const LayerContext& context_;
  int64_t position_;
  const model::StateHeads& own_;
  ops::ShortConvolution weights_, gradients_;
};

}  // namespace

std::unique_ptr<const Part> make_short_convolution(const Site& site, const model::Part& part) {
  return make_framed(
      site, part,
      {.out = roles::kRecurrentOut,
       .out_bias = roles::kRecurrentOutBias,
       .in = {{roles::kRecurrentQkv, roles::kRecurrentQkvBias}},
       .inner = {{roles::kConvolution, {}, {}, false}}},
      std::make_unique<ShortConvolutionMixer>(site, std::get<model::ShortConvolution>(part.mixer)));
}

}  // namespace sluice::layers
