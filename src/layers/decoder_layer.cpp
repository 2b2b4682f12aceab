#include "layers/decoder_layer.h"

#include <utility>

namespace sluice::layers {

at::Tensor layer_forward(const LayerContext& context, const MicroBatchLayout& layout,
                         const LayerParameters& weights, const at::Tensor& x_SH, LayerSaved* saved) {
  const at::Tensor middle_SH =
      attention_forward(context, layout, weights, x_SH, saved != nullptr ? &saved->attention : nullptr);
  return mlp_forward(context, weights, middle_SH, saved != nullptr ? &saved->mlp : nullptr);
}

at::Tensor layer_backward_input(const LayerContext& context, const MicroBatchLayout& layout,
                                const LayerParameters& weights, LayerSaved saved, const at::Tensor& dy_SH,
                                const LayerParameters& gradients, LayerDeferred& deferred) {
  const at::Tensor dmiddle_SH =
      mlp_backward_input(context, weights, std::move(saved.mlp), dy_SH, gradients, deferred.mlp);
  deferred.mlp.dy_TH.reset();
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
  const at::Tensor dmiddle_SH =
      mlp_backward_input(context, weights, std::move(saved.mlp), dy_SH, gradients, deferred.mlp);
  mlp_backward_weight(context, std::move(deferred.mlp), gradients);
  at::Tensor dx_SH = attention_backward_input(context, layout, weights, std::move(saved.attention),
                                              dmiddle_SH, gradients, deferred.attention);
  attention_backward_weight(context, std::move(deferred.attention), gradients);
  return dx_SH;
}

}  // namespace sluice::layers
