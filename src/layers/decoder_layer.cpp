#include "layers/decoder_layer.h"

#include <utility>

namespace sluice::layers {

namespace {

int64_t bytes_of(std::initializer_list<at::Tensor> tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

// The MLP's half comes first in a backward, and is done with when attention's is made again.
void restore_mlp(const LayerContext& context, const LayerParameters& weights, LayerSaved& saved) {
  if (saved.mlp.gate_up_TG.defined()) return;
  saved.mlp = mlp_first_half(context, weights, attention_result(context, weights, saved.attention));
}

}  // namespace

void drop_recomputable(LayerSaved& saved) {
  saved.mlp = {};
  saved.attention.inverse_rms_S.reset();
  saved.attention.unnormed_TU.reset();
  saved.attention.product_SH.reset();
  drop_exchanged(saved.attention.attended);
}

std::vector<SavedRows> rows_of(LayerSaved& saved) {
  auto& [attention, mlp] = saved;
  return {{attention.x_SH},
          {attention.inverse_rms_S},
          {attention.unnormed_TU},
          {attention.product_SH},
          {attention.attended.qkv_AR},
          {attention.attended.result.out_TND},
          {attention.attended.result.lse_NT, 1},
          {attention.attended.a_TQ},
          {mlp.x_SH},
          {mlp.inverse_rms_S},
          {mlp.gate_up_TG},
          {mlp.product_SH}};
}

std::vector<SavedRows> rows_of(LayerDeferred& deferred) {
  auto& [attention, mlp] = deferred;
  return {{attention.normed_SH}, {attention.dqkv_TP}, {attention.a_TQ}, {attention.dy_SH}, {attention.dy_TH},
          {mlp.normed_SH},       {mlp.dgate_up_TG},   {mlp.a_TF},       {mlp.dy_SH},       {mlp.dy_TH}};
}

int64_t bytes_of(const LayerSaved& saved) {
  const auto& [attention, mlp] = saved;
  const Attended& attended = attention.attended;
  return bytes_of({attention.x_SH, attention.inverse_rms_S, attention.unnormed_TU, attention.product_SH,
                   attended.qkv_AR, attended.result.out_TND, attended.result.lse_NT, attended.a_TQ, mlp.x_SH,
                   mlp.inverse_rms_S, mlp.gate_up_TG, mlp.product_SH});
}

int64_t bytes_of(const LayerDeferred& deferred) {
  const auto& [attention, mlp] = deferred;
  return bytes_of({attention.normed_SH, attention.dqkv_TP, attention.a_TQ, attention.dy_SH, attention.dy_TH,
                   mlp.normed_SH, mlp.dgate_up_TG, mlp.a_TF, mlp.dy_SH, mlp.dy_TH});
}

at::Tensor layer_forward(const LayerContext& context, const MicroBatchLayout& layout,
                         const LayerParameters& weights, const at::Tensor& x_SH, LayerSaved* saved) {
  const at::Tensor middle_SH =
      attention_forward(context, layout, weights, x_SH, saved != nullptr ? &saved->attention : nullptr);
  return mlp_forward(context, weights, middle_SH, saved != nullptr ? &saved->mlp : nullptr);
}

at::Tensor layer_backward_input(const LayerContext& context, const MicroBatchLayout& layout,
                                const LayerParameters& weights, LayerSaved saved, const at::Tensor& dy_SH,
                                const LayerParameters& gradients, LayerDeferred& deferred) {
  restore_mlp(context, weights, saved);
  const at::Tensor dmiddle_SH =
      mlp_backward_input(context, weights, std::move(saved.mlp), dy_SH, gradients, deferred.mlp);
  deferred.mlp.dy_TH.reset();
  restore_attention(context, layout, weights, saved.attention);
  at::Tensor dx_SH = attention_backward_input(context, layout, weights, std::move(saved.attention),
                                              dmiddle_SH, gradients, deferred.attention);
  deferred.attention.dy_TH.reset();
  return dx_SH;
}

void layer_backward_weight(const LayerContext& context, LayerDeferred deferred,
                           const LayerParameters& gradients) {
  mlp_backward_weight(context, std::move(deferred.mlp), gradients);
  attention_backward_weight(context, std::move(deferred.attention), gradients);
}

at::Tensor layer_backward(const LayerContext& context, const MicroBatchLayout& layout,
                          const LayerParameters& weights, LayerSaved saved, const at::Tensor& dy_SH,
                          const LayerParameters& gradients) {
  LayerDeferred deferred;
  restore_mlp(context, weights, saved);
  const at::Tensor dmiddle_SH =
      mlp_backward_input(context, weights, std::move(saved.mlp), dy_SH, gradients, deferred.mlp);
  mlp_backward_weight(context, std::move(deferred.mlp), gradients);
  restore_attention(context, layout, weights, saved.attention);
  at::Tensor dx_SH = attention_backward_input(context, layout, weights, std::move(saved.attention),
                                              dmiddle_SH, gradients, deferred.attention);
  attention_backward_weight(context, std::move(deferred.attention), gradients);
  return dx_SH;
}

}  // namespace sluice::layers
