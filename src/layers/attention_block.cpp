#include "layers/attention_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>

#include <array>
#include <utility>

#include "layers/memory.h"
#include "layers/rank_norm.h"
#include "layers/residual.h"
#include "ops/rotary.h"

namespace sluice::layers {
namespace {

// The queries and keys of qkv_TP as heads [T, N + K, D]: they lie side by side and rotate as one.
at::Tensor rotating_heads(const LayerContext& context, const at::Tensor& qkv_TP) {
  const int64_t heads = context.local_heads() + context.local_kv_heads(), dimension = context.shape.head_dim;
  return qkv_TP.narrow(1, 0, heads * dimension).view({qkv_TP.size(0), heads, dimension});
}

Exit exit_of(const AttentionParameters& of) {
  return {of.attention_out_QH, of.attention_out_bias_H, of.norm_behind_H};
}

// Where queries or keys lie in rows of qkv_TP, and whose norm they have.
struct NormedHeads {
  at::Tensor AttentionParameters::*norm_D;
  int64_t begin;
  int64_t width;
  RankNorm norm;

  at::Tensor in(const at::Tensor& heads_TW) const { return heads_TW.narrow(1, begin, width); }
  // What is normed together in a row.
  at::Tensor rows_in(const at::Tensor& heads_TW) const {
    return in(heads_TW).reshape({-1, norm.width / norm.ranks});
  }
};
std::array<NormedHeads, 2> normed_heads(const LayerContext& context) {
  const model::Shape& shape = context.shape;
  const int64_t q = context.local_heads() * shape.head_dim, k = context.local_kv_heads() * shape.head_dim;
  const bool all = shape.qk_norm == model::QkNorm::kAllHeads;
  const int64_t tp = context.parallel.tp;
  const auto of = [&](int64_t local) {
    return all ? RankNorm{context.parallel, local * tp, tp, shape.norm_eps, shape.norm_offset}
               : RankNorm{{}, shape.head_dim, 1, shape.norm_eps, shape.norm_offset};
  };
  return {NormedHeads{&AttentionParameters::q_norm_D, 0, q, of(q)},
          NormedHeads{&AttentionParameters::k_norm_D, q, k, of(k)}};
}

void norm_heads(const LayerContext& context, const AttentionParameters& weights, const at::Tensor& qkv_TP) {
  for (const NormedHeads& heads : normed_heads(context)) {
    const at::Tensor y_RD = heads.norm.forward(heads.rows_in(qkv_TP), weights.*heads.norm_D);
    const at::Tensor to = heads.in(qkv_TP);
    to.copy_(y_RD.view(to.sizes()));
  }
}

// Takes gradients of normed queries and keys in dqkv_TP to those of what was normed, and adds the norms' own.
void norm_heads_backward(const LayerContext& context, const AttentionParameters& weights,
                         const at::Tensor& unnormed_TU, const at::Tensor& dqkv_TP,
                         const AttentionParameters& gradients) {
  for (const NormedHeads& heads : normed_heads(context)) {
    const at::Tensor dx_RD = heads.norm.backward(heads.rows_in(dqkv_TP), heads.rows_in(unnormed_TU),
                                                 weights.*heads.norm_D, gradients.*heads.norm_D);
    const at::Tensor to = heads.in(dqkv_TP);
    to.copy_(dx_RD.view(to.sizes()));
  }
}

void turn(const LayerContext& context, const MicroBatchLayout& layout, const at::Tensor& qkv_TP,
          ops::Rotation rotation) {
  if (!context.type.rotates) return;
  ops::rotate(rotating_heads(context, qkv_TP), context.own_rotary(), layout.position_T, rotation);
}

struct Projected {
  at::Tensor inverse_rms_S;  // of the input's norm
  at::Tensor unnormed_TU;
  at::Tensor qkv_TP;  // what the heads attend with: rotated queries and keys, and values
  at::Tensor gate_TQ;
};

// Of queries and gates, which take turns by head, keys and values: the gates, apart from the rest.
struct Parted {
  at::Tensor qkv_TP, gate_TQ;
};
Parted part_gates(const LayerContext& context, const at::Tensor& product_TP) {
  const int64_t heads = context.local_heads(), dimension = context.shape.head_dim, q = heads * dimension;
  const at::Tensor both_TN2D = product_TP.narrow(1, 0, 2 * q).unflatten(1, {heads, 2, dimension});
  return {
      at::cat({both_TN2D.select(2, 0).flatten(1), product_TP.narrow(1, 2 * q, product_TP.size(1) - 2 * q)},
              1),
      both_TN2D.select(2, 1).flatten(1)};
}
// And their gradients as one again.
at::Tensor join_gates(const LayerContext& context, const at::Tensor& dqkv_TP, const at::Tensor& dgate_TQ) {
  const int64_t heads = context.local_heads(), dimension = context.shape.head_dim, q = heads * dimension;
  const auto by_head = [&](const at::Tensor& x_TQ) { return x_TQ.unflatten(1, {heads, 1, dimension}); };
  return at::cat({at::cat({by_head(dqkv_TP.narrow(1, 0, q)), by_head(dgate_TQ)}, 2).flatten(1),
                  dqkv_TP.narrow(1, q, dqkv_TP.size(1) - q)},
                 1);
}

// What the output matrix takes: what heads attended to, let through as far as their gates open.
at::Tensor let_through(const at::Tensor& attended_TQ, const at::Tensor& gate_TQ) {
  return gate_TQ.defined() ? attended_TQ * at::sigmoid(gate_TQ) : attended_TQ;
}

Projected project(const LayerContext& context, const MicroBatchLayout& layout,
                  const AttentionParameters& weights, const at::Tensor& x_SH) {
  PartInput input = enter(context, x_SH, weights.attention_norm_H);
  Projected result{.inverse_rms_S = std::move(input.inverse_rms_S)};
  at::Tensor& qkv_TP = result.qkv_TP;
  qkv_TP = times_transposed(context.parallel.all_gather_rows(input.y_SH), weights.qkv_PH);
  if (weights.qkv_bias_P.defined()) qkv_TP.add_(weights.qkv_bias_P);
  if (context.shape.gated) {
    Parted parted = part_gates(context, qkv_TP);
    qkv_TP = std::move(parted.qkv_TP);
    result.gate_TQ = std::move(parted.gate_TQ);
  }
  if (weights.q_norm_D.defined()) {
    const NormedHeads keys = normed_heads(context).back();
    result.unnormed_TU = qkv_TP.narrow(1, 0, keys.begin + keys.width).contiguous();
    norm_heads(context, weights, qkv_TP);
  }
  turn(context, layout, qkv_TP, ops::Rotation::kForward);
  return result;
}

}  // namespace

at::Tensor attention_forward(const LayerContext& context, const MicroBatchLayout& layout,
                             const AttentionParameters& weights, const at::Tensor& x_SH,
                             AttentionSaved* saved, const CachedKeys& cached) {
  Projected projected = project(context, layout, weights, x_SH);
  Attended attended = attend(context, layout, std::move(projected.qkv_TP), weights.sinks_N, cached);
  const at::Tensor a_TQ = let_through(attended.output_TQ(), projected.gate_TQ);
  at::Tensor product_SH;
  at::Tensor y_SH = join(context, x_SH, a_TQ, exit_of(weights), &product_SH);
  if (saved != nullptr) {
    *saved = {.x_SH = x_SH,
              .inverse_rms_S = std::move(projected.inverse_rms_S),
              .unnormed_TU = std::move(projected.unnormed_TU),
              .product_SH = std::move(product_SH),
              .gate_TQ = std::move(projected.gate_TQ),
              .attended = std::move(attended)};
  }
  return y_SH;
}

void restore_attention(const LayerContext& context, const MicroBatchLayout& layout,
                       const AttentionParameters& weights, AttentionSaved& saved) {
  if (saved.attended.qkv_AR.defined()) return;
  Projected projected = project(context, layout, weights, saved.x_SH);
  saved.inverse_rms_S = std::move(projected.inverse_rms_S);
  saved.unnormed_TU = std::move(projected.unnormed_TU);
  restore(context, layout, projected.qkv_TP, saved.attended);
}

at::Tensor attention_result(const LayerContext& context, const AttentionParameters& weights,
                            const AttentionSaved& saved) {
  return join(context, saved.x_SH, let_through(saved.attended.output_TQ(), saved.gate_TQ), exit_of(weights));
}

at::Tensor attention_backward_input(const LayerContext& context, const MicroBatchLayout& layout,
                                    const AttentionParameters& weights, AttentionSaved saved,
                                    const at::Tensor& dy_SH, const AttentionParameters& gradients,
                                    AttentionDeferred& deferred) {
  if (weights.norm_behind_H.defined() && !saved.product_SH.defined()) {
    saved.product_SH =
        joined_product(context, let_through(saved.attended.output_TQ(), saved.gate_TQ), exit_of(weights));
  }
  const at::Tensor dproduct_SH =
      join_backward(context, dy_SH, exit_of(weights), saved.product_SH, exit_of(gradients));
  saved.product_SH.reset();
  const at::Tensor dy_TH = context.parallel.all_gather_rows(dproduct_SH);
  at::Tensor da_TQ = times_transposed(dy_TH, weights.attention_out_QH), a_TQ, dgate_TQ;
  if (context.shape.gated) {
    const at::Tensor open_TQ = at::sigmoid(saved.gate_TQ);
    a_TQ = saved.attended.output_TQ() * open_TQ;
    dgate_TQ = (da_TQ * a_TQ).mul_(1 - open_TQ);
    da_TQ.mul_(open_TQ);
    saved.gate_TQ.reset();
  }
  at::Tensor dqkv_TP = attend_backward(context, layout, std::move(da_TQ), saved.attended,
                                       {weights.sinks_N, gradients.sinks_N});
  turn(context, layout, dqkv_TP, ops::Rotation::kBackward);
  if (weights.q_norm_D.defined()) {
    norm_heads_backward(context, weights, saved.unnormed_TU, dqkv_TP, gradients);
    saved.unnormed_TU.reset();
  }
  if (dgate_TQ.defined()) dqkv_TP = join_gates(context, dqkv_TP, dgate_TQ);
  const at::Tensor dnormed_SH = context.parallel.reduce_scatter_rows(times(dqkv_TP, weights.qkv_PH));
  PartInputGradient input = enter_backward(context, dnormed_SH, saved.x_SH, weights.attention_norm_H,
                                           saved.inverse_rms_S, dy_SH, gradients.attention_norm_H);
  const bool of_qkv = gradients.qkv_PH.wanted();
  if (of_qkv || gradients.qkv_bias_P.defined()) deferred.dqkv_TP = dqkv_TP;
  if (of_qkv) {
    deferred.qkv = narrow_rows(weights.qkv_PH, gradients.qkv_PH, dqkv_TP, input.y_SH, context.parallel);
    deferred.normed_SH = std::move(input.y_SH);
  }
  if (gradients.attention_out_QH.wanted()) {
    deferred.a_TQ = a_TQ.defined() ? a_TQ : saved.attended.output_TQ();
    deferred.out = narrow_rows(weights.attention_out_QH, gradients.attention_out_QH, deferred.a_TQ, dy_TH);
    deferred.dy_SH = dproduct_SH;
    deferred.dy_TH = dy_TH;
  }
  return input.dx_SH;
}

void attention_backward_weight(const LayerContext& context, AttentionDeferred deferred,
                               const AttentionParameters& gradients) {
  if (deferred.a_TQ.defined()) {
    if (!deferred.dy_TH.defined()) deferred.dy_TH = context.parallel.all_gather_rows(deferred.dy_SH);
    accumulate_gradient(gradients.attention_out_QH, deferred.out, deferred.a_TQ, deferred.dy_TH);
    deferred.a_TQ.reset();
    deferred.dy_TH.reset();
  }
  if (deferred.normed_SH.defined()) {
    const at::Tensor normed_TH = context.parallel.all_gather_rows(deferred.normed_SH);
    accumulate_gradient(gradients.qkv_PH, deferred.qkv, deferred.dqkv_TP, normed_TH);
  }
  if (gradients.qkv_bias_P.defined()) {
    gradients.qkv_bias_P.add_(deferred.dqkv_TP.sum(0, /*keepdim=*/false, gradients.qkv_bias_P.scalar_type()));
  }
}

std::vector<SavedRows> rows_of(AttentionSaved& saved) {
  std::vector<SavedRows> rows{
      {saved.x_SH}, {saved.inverse_rms_S}, {saved.unnormed_TU}, {saved.product_SH}, {saved.gate_TQ}};
  add_rows(saved.attended, rows);
  return rows;
}

std::vector<SavedRows> rows_of(AttentionDeferred& deferred) {
  std::vector<SavedRows> rows{
      {deferred.normed_SH}, {deferred.dqkv_TP}, {deferred.a_TQ}, {deferred.dy_SH}, {deferred.dy_TH}};
  add_rows(deferred.qkv, rows);
  add_rows(deferred.out, rows);
  return rows;
}

namespace {

class AttentionPart final : public Part {
 public:
  explicit AttentionPart(const Site& site)
      : context_(site.context),
        position_(site.position),
        weights_(attention_parameters(site.own_weights())),
        gradients_(attention_parameters(site.own_gradients())) {}

  at::Tensor forward(const MicroBatchLayout& layout, const at::Tensor& x_SH, StatePtr* saved) const override {
    if (saved == nullptr) {
      const KeyCache* const cache = layout.cached.cache;
      return attention_forward(context_, layout, weights_, x_SH, nullptr,
                               cache != nullptr ? cache->of(position_) : CachedKeys{});
    }
    auto state = std::make_unique<TensorState<AttentionSaved>>();
    at::Tensor y_SH = attention_forward(context_, layout, weights_, x_SH, &state->tensors);
    *saved = std::move(state);
    return y_SH;
  }
  void drop_recomputable(State& state, Input input) const override {
    auto& saved = tensors_of<AttentionSaved>(state);
    if (input == Input::kMadeAgain) saved.x_SH.reset();
    saved.inverse_rms_S.reset();
    saved.unnormed_TU.reset();
    saved.product_SH.reset();
    drop_exchanged(saved.attended);
  }
  at::Tensor result(const State& saved) const override {
    return attention_result(context_, weights_, tensors_of<AttentionSaved>(saved));
  }
  void restore(const MicroBatchLayout& layout, State& state, const at::Tensor& x_SH) const override {
    auto& saved = tensors_of<AttentionSaved>(state);
    if (!saved.x_SH.defined()) saved.x_SH = x_SH;
    restore_attention(context_, layout, weights_, saved);
  }
  int64_t recomputed_bytes(const MicroBatchLayout& layout) const override {
    return recomputed_attention_bytes(context_.shape, cut_of(context_, layout, weights_.qkv_PH.w_AB),
                                      layout.rows);
  }
  at::Tensor backward_input(const MicroBatchLayout& layout, StatePtr saved, const at::Tensor& dy_SH,
                            StatePtr& deferred) const override {
    auto state = std::make_unique<TensorState<AttentionDeferred>>();
    at::Tensor dx_SH =
        attention_backward_input(context_, layout, weights_, std::move(tensors_of<AttentionSaved>(*saved)),
                                 dy_SH, gradients_, state->tensors);
    deferred = std::move(state);
    return dx_SH;
  }
  void drop_gathered(State& deferred) const override {
    tensors_of<AttentionDeferred>(deferred).dy_TH.reset();
  }
  void backward_weight(StatePtr deferred) const override {
    attention_backward_weight(context_, std::move(tensors_of<AttentionDeferred>(*deferred)), gradients_);
  }

 private:
  const LayerContext& context_;
  int64_t position_;
  AttentionParameters weights_, gradients_;
};

}  // namespace

std::unique_ptr<const Part> make_attention(const Site& site) {
  return std::make_unique<const AttentionPart>(site);
}

}  // namespace sluice::layers
