#include "layers/mlp_block.h"

#include <utility>

#include "layers/gated.h"
#include "layers/memory.h"
#include "layers/residual.h"

namespace sluice::layers {
namespace {

Exit exit_of(const MlpParameters& of) { return {of.down_FH, {}, of.norm_behind_H}; }

}  // namespace

MlpSaved mlp_first_half(const LayerContext& context, const MlpParameters& weights, const at::Tensor& x_SH) {
  PartInput input = enter(context, x_SH, weights.mlp_norm_H);
  at::Tensor gate_up_TG = times_transposed(context.parallel.all_gather_rows(input.y_SH), weights.gate_up_GH);
  return {.x_SH = x_SH, .inverse_rms_S = std::move(input.inverse_rms_S), .gate_up_TG = std::move(gate_up_TG)};
}

at::Tensor mlp_forward(const LayerContext& context, const MlpParameters& weights, const at::Tensor& x_SH,
                       MlpSaved* saved) {
  MlpSaved half = mlp_first_half(context, weights, x_SH);
  const at::Tensor a_TF = gated(context, half.gate_up_TG);
  at::Tensor y_SH = join(context, x_SH, a_TF, exit_of(weights), &half.product_SH);
  if (saved != nullptr) *saved = std::move(half);
  return y_SH;
}

at::Tensor mlp_backward_input(const LayerContext& context, const MlpParameters& weights, MlpSaved saved,
                              const at::Tensor& dy_SH, const MlpParameters& gradients,
                              MlpDeferred& deferred) {
  if (weights.norm_behind_H.defined() && !saved.product_SH.defined()) {
    saved.product_SH = joined_product(context, gated(context, saved.gate_up_TG), exit_of(weights));
  }
  const at::Tensor dproduct_SH =
      join_backward(context, dy_SH, exit_of(weights), saved.product_SH, exit_of(gradients));
  const at::Tensor dy_TH = context.parallel.all_gather_rows(dproduct_SH);
  const at::Tensor dgate_up_TG = std::move(saved.gate_up_TG);
  const at::Tensor a_TF = gated_backward(context, times_transposed(dy_TH, weights.down_FH), dgate_up_TG);
  const at::Tensor dnormed_SH = context.parallel.reduce_scatter_rows(times(dgate_up_TG, weights.gate_up_GH));
  PartInputGradient input = enter_backward(context, dnormed_SH, saved.x_SH, weights.mlp_norm_H,
                                           saved.inverse_rms_S, dy_SH, gradients.mlp_norm_H);
  if (gradients.gate_up_GH.wanted()) {
    deferred.gate_up =
        narrow_rows(weights.gate_up_GH, gradients.gate_up_GH, dgate_up_TG, input.y_SH, context.parallel);
    deferred.normed_SH = std::move(input.y_SH);
    deferred.dgate_up_TG = dgate_up_TG;
  }
  if (gradients.down_FH.wanted()) {
    deferred.down = narrow_rows(weights.down_FH, gradients.down_FH, a_TF, dy_TH);
    deferred.a_TF = a_TF;
    deferred.dy_SH = dproduct_SH;
    deferred.dy_TH = dy_TH;
  }
  return input.dx_SH;
}

void mlp_backward_weight(const LayerContext& context, MlpDeferred deferred, const MlpParameters& gradients) {
  if (deferred.a_TF.defined()) {
    if (!deferred.dy_TH.defined()) deferred.dy_TH = context.parallel.all_gather_rows(deferred.dy_SH);
    accumulate_gradient(gradients.down_FH, deferred.down, deferred.a_TF, deferred.dy_TH);
    deferred.a_TF.reset();
    deferred.dy_TH.reset();
  }
  if (!deferred.normed_SH.defined()) return;
  const at::Tensor normed_TH = context.parallel.all_gather_rows(deferred.normed_SH);
  accumulate_gradient(gradients.gate_up_GH, deferred.gate_up, deferred.dgate_up_TG, normed_TH);
}

std::vector<SavedRows> rows_of(MlpSaved& saved) {
  return {{saved.x_SH}, {saved.inverse_rms_S}, {saved.gate_up_TG}, {saved.product_SH}};
}

std::vector<SavedRows> rows_of(MlpDeferred& deferred) {
  std::vector<SavedRows> rows{
      {deferred.normed_SH}, {deferred.dgate_up_TG}, {deferred.a_TF}, {deferred.dy_SH}, {deferred.dy_TH}};
  add_rows(deferred.gate_up, rows);
  add_rows(deferred.down, rows);
  return rows;
}

namespace {

class MlpPart final : public Part {
 public:
  explicit MlpPart(const Site& site)
      : context_(site.context),
        weights_(mlp_parameters(site.own_weights())),
        gradients_(mlp_parameters(site.own_gradients())) {}

  at::Tensor forward(const MicroBatchLayout&, const at::Tensor& x_SH, StatePtr* saved) const override {
    if (saved == nullptr) return mlp_forward(context_, weights_, x_SH, nullptr);
    auto state = std::make_unique<TensorState<MlpSaved>>();
    at::Tensor y_SH = mlp_forward(context_, weights_, x_SH, &state->tensors);
    *saved = std::move(state);
    return y_SH;
  }
  void drop_recomputable(State& state, Input input) const override {
    auto& saved = tensors_of<MlpSaved>(state);
    saved = {.x_SH = input == Input::kKept ? saved.x_SH : at::Tensor()};
  }
  at::Tensor result(const State& saved) const override {
    return mlp_forward(context_, weights_, tensors_of<MlpSaved>(saved).x_SH, nullptr);
  }
  void restore(const MicroBatchLayout&, State& state, const at::Tensor& x_SH) const override {
    auto& saved = tensors_of<MlpSaved>(state);
    if (!saved.gate_up_TG.defined()) {
      saved = mlp_first_half(context_, weights_, saved.x_SH.defined() ? saved.x_SH : x_SH);
    }
  }
  int64_t recomputed_bytes(const MicroBatchLayout& layout) const override {
    return recomputed_mlp_bytes(context_.shape, cut_of(context_, layout, weights_.gate_up_GH.w_AB),
                                layout.rows);
  }
  at::Tensor backward_input(const MicroBatchLayout&, StatePtr saved, const at::Tensor& dy_SH,
                            StatePtr& deferred) const override {
    auto state = std::make_unique<TensorState<MlpDeferred>>();
    at::Tensor dx_SH = mlp_backward_input(context_, weights_, std::move(tensors_of<MlpSaved>(*saved)), dy_SH,
                                          gradients_, state->tensors);
    deferred = std::move(state);
    return dx_SH;
  }
  void drop_gathered(State& deferred) const override { tensors_of<MlpDeferred>(deferred).dy_TH.reset(); }
  void backward_weight(StatePtr deferred) const override {
    mlp_backward_weight(context_, std::move(tensors_of<MlpDeferred>(*deferred)), gradients_);
  }

 private:
  const LayerContext& context_;
  MlpParameters weights_, gradients_;
};

}  // namespace

std::unique_ptr<const Part> make_mlp(const Site& site) { return std::make_unique<const MlpPart>(site); }

}  // namespace sluice::layers
