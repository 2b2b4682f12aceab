#include "layers/attention_block.h"

#include <utility>

#include "layers/residual.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace sluice::layers {
namespace {

// The queries and keys of qkv_TP as heads [T, N + K, D]: they lie side by side and rotate as one.
at::Tensor rotating_heads(const LayerContext& context, const at::Tensor& qkv_TP) {
  const int64_t heads = context.local_heads() + context.local_kv_heads(), dimension = context.shape.head_dim;
  return qkv_TP.narrow(1, 0, heads * dimension).view({qkv_TP.size(0), heads, dimension});
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
  Attended attended = attend(context, layout, rotated_qkv(context, layout, weights, x_SH, inverse_rms_S));
  const at::Tensor a_TQ = attended.output_TQ();
  if (saved != nullptr) *saved = {x_SH, std::move(inverse_rms_S), std::move(attended)};
  return add_product(context.parallel, x_SH, a_TQ, weights.attention_out_QH);
}

void restore_attention(const LayerContext& context, const MicroBatchLayout& layout,
                       const LayerParameters& weights, AttentionSaved& saved) {
  if (saved.attended.qkv_AR.defined()) return;
  const at::Tensor qkv_TP = rotated_qkv(context, layout, weights, saved.x_SH, saved.inverse_rms_S);
  restore(context, layout, qkv_TP, saved.attended);
}

at::Tensor attention_result(const LayerContext& context, const LayerParameters& weights,
                            const AttentionSaved& saved) {
  return add_product(context.parallel, saved.x_SH, saved.attended.output_TQ(), weights.attention_out_QH);
}

at::Tensor attention_backward_input(const LayerContext& context, const MicroBatchLayout& layout,
                                    const LayerParameters& weights, AttentionSaved saved,
                                    const at::Tensor& dy_SH, const LayerParameters& gradients,
                                    AttentionDeferred& deferred) {
  const at::Tensor dy_TH = context.parallel.all_gather_rows(dy_SH);
  const at::Tensor dqkv_TP = attend_backward(
      context, layout, ops::times_transposed(dy_TH, weights.attention_out_QH), saved.attended);
  ops::rotate(rotating_heads(context, dqkv_TP), context.rotary, layout.position_T, ops::Rotation::kBackward);
  const at::Tensor dnormed_SH = context.parallel.reduce_scatter_rows(ops::times(dqkv_TP, weights.qkv_PH));
  const ops::RmsNormGradient norm =
      ops::rms_norm_backward(dnormed_SH, saved.x_SH, weights.attention_norm_H, saved.inverse_rms_S, dy_SH,
                             gradients.attention_norm_H);
  deferred = {norm.y_TH, dqkv_TP, saved.attended.output_TQ(), dy_SH, dy_TH};
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
