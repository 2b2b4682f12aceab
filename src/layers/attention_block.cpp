#include "layers/attention_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <utility>

#include "layers/residual.h"
#include "layers/ring_attention.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace sluice::layers {
namespace {

// The queries and keys of qkv_TP as heads [T, N + K, D]: they lie side by side and rotate as one.
at::Tensor rotating_heads(const LayerContext& context, const at::Tensor& qkv_TP) {
  const int64_t heads = context.local_heads() + context.local_kv_heads(), dimension = context.shape.head_dim;
  return qkv_TP.narrow(1, 0, heads * dimension).view({qkv_TP.size(0), heads, dimension});
}

ops::AttentionInput split_heads(const LayerContext& context, const at::Tensor& qkv_TP) {
  const int64_t heads = context.local_heads(), kv_heads = context.local_kv_heads();
  const at::Tensor all_heads = qkv_TP.view({qkv_TP.size(0), heads + 2 * kv_heads, context.shape.head_dim});
  return {.q_TND = all_heads.narrow(1, 0, heads),
          .k_TKD = all_heads.narrow(1, heads, kv_heads),
          .v_TKD = all_heads.narrow(1, heads + kv_heads, kv_heads),
          .scale = 1.0 / std::sqrt(static_cast<double>(context.shape.head_dim))};
}

ops::AttentionResult attend(const LayerContext& context, const MicroBatchLayout& layout,
                            const ops::AttentionInput& input) {
  return layout.ring.lanes > 1 ? ring_attention(*context.ring, layout, input)
                               : ops::attention(input, layout.sequences);
}

// Gradient of qkv_TP, in its place where its keys and values are not needed to the end.
at::Tensor attend_backward(const LayerContext& context, const MicroBatchLayout& layout,
                           const at::Tensor& dout_TND, const at::Tensor& qkv_TP,
                           const ops::AttentionResult& saved) {
  const bool ring = layout.ring.lanes > 1;
  const at::Tensor dqkv_TP = ring ? at::empty_like(qkv_TP) : qkv_TP;
  const ops::AttentionInput input = split_heads(context, qkv_TP), parts = split_heads(context, dqkv_TP);
  const ops::AttentionGradient gradient{parts.q_TND, parts.k_TKD, parts.v_TKD};
  if (ring) {
    ring_attention_backward(*context.ring, layout, dout_TND, input, saved, gradient);
  } else {
    ops::attention_backward(dout_TND, input, saved, layout.sequences, gradient);
  }
  return dqkv_TP;
}

// What the heads attend with: rotated queries and keys, and values. Leaves the norm's scale in
// `inverse_rms_S`.
at::Tensor rotated_qkv(const LayerContext& context, const MicroBatchLayout& layout,
                       const LayerParameters& weights, const at::Tensor& x_SH, at::Tensor& inverse_rms_S) {
  ops::RmsNorm norm = ops::rms_norm(x_SH, weights.attention_norm_H, context.shape.norm_eps);
  at::Tensor qkv_TP = ops::times_transposed(context.parallel.all_gather_rows(norm.y_TH), weights.qkv_PH);
  ops::rotate(rotating_heads(context, qkv_TP), context.rotary, layout.position_T, ops::Rotation::kForward);
  inverse_rms_S = std::move(norm.inverse_rms_T);
  return qkv_TP;
}

}  // namespace

at::Tensor attention_forward(const LayerContext& context, const MicroBatchLayout& layout,
                             const LayerParameters& weights, const at::Tensor& x_SH, AttentionSaved* saved) {
  at::Tensor inverse_rms_S;
  const at::Tensor qkv_TP = rotated_qkv(context, layout, weights, x_SH, inverse_rms_S);
  ops::AttentionResult attention = attend(context, layout, split_heads(context, qkv_TP));
  const at::Tensor a_TQ = attention.out_TND.flatten(1);
  if (saved != nullptr) *saved = {x_SH, std::move(inverse_rms_S), qkv_TP, std::move(attention)};
  return add_product(context.parallel, x_SH, a_TQ, weights.attention_out_QH);
}

void restore_attention(const LayerContext& context, const MicroBatchLayout& layout,
                       const LayerParameters& weights, AttentionSaved& saved) {
  if (saved.qkv_TP.defined()) return;
  saved.qkv_TP = rotated_qkv(context, layout, weights, saved.x_SH, saved.inverse_rms_S);
}

at::Tensor attention_result(const LayerContext& context, const LayerParameters& weights,
                            const AttentionSaved& saved) {
  return add_product(context.parallel, saved.x_SH, saved.attention.out_TND.flatten(1),
                     weights.attention_out_QH);
}

at::Tensor attention_backward_input(const LayerContext& context, const MicroBatchLayout& layout,
                                    const LayerParameters& weights, AttentionSaved saved,
                                    const at::Tensor& dy_SH, const LayerParameters& gradients,
                                    AttentionDeferred& deferred) {
  const at::Tensor dy_TH = context.parallel.all_gather_rows(dy_SH);
  at::Tensor da_TQ = ops::times_transposed(dy_TH, weights.attention_out_QH);
  const at::Tensor dqkv_TP =
      attend_backward(context, layout, da_TQ.view_as(saved.attention.out_TND), saved.qkv_TP, saved.attention);
  da_TQ.reset();
  saved.qkv_TP.reset();
  ops::rotate(rotating_heads(context, dqkv_TP), context.rotary, layout.position_T, ops::Rotation::kBackward);
  const at::Tensor dnormed_SH = context.parallel.reduce_scatter_rows(ops::times(dqkv_TP, weights.qkv_PH));
  const ops::RmsNormGradient norm =
      ops::rms_norm_backward(dnormed_SH, saved.x_SH, weights.attention_norm_H, saved.inverse_rms_S, dy_SH,
                             gradients.attention_norm_H);
  deferred = {norm.y_TH, dqkv_TP, saved.attention.out_TND.flatten(1), dy_SH, dy_TH};
  return norm.dx_TH;
}

void attention_backward_weight(const LayerContext& context, AttentionDeferred deferred,
                               const LayerParameters& gradients) {
  if (!deferred.dy_TH.defined()) deferred.dy_TH = context.parallel.all_gather_rows(deferred.dy_SH);
  ops::accumulate_weight_gradient(gradients.attention_out_QH, deferred.a_TQ, deferred.dy_TH);
  deferred.a_TQ.reset();
  deferred.dy_TH.reset();
  const at::Tensor normed_TH = context.parallel.all_gather_rows(deferred.normed_SH);
  ops::accumulate_weight_gradient(gradients.qkv_PH, deferred.dqkv_TP, normed_TH);
}

}  // namespace sluice::layers
