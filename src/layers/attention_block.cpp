#include "layers/attention_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>

#include <array>
#include <utility>

#include "layers/frame.h"
#include "layers/key_cache.h"
#include "layers/lane_attention.h"
#include "layers/parameters.h"
#include "layers/rank_norm.h"
#include "model/attention_kind.h"
#include "ops/rotary.h"

namespace sluice::layers {
namespace {

// The queries and keys of qkv_TP as heads [T, N + K, D]: they lie side by side and rotate as one.
at::Tensor rotating_heads(const LayerContext& context, const at::Tensor& qkv_TP) {
  const int64_t heads = context.local_heads() + context.local_kv_heads(), dimension = context.shape.head_dim;
  return qkv_TP.narrow(1, 0, heads * dimension).view({qkv_TP.size(0), heads, dimension});
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

struct AttentionState final : MixerState {
  at::Tensor unnormed_TU;  // queries and keys before their norms; undefined where heads have none
  at::Tensor gate_TQ;      // of heads that have gates, before the sigmoid
  Attended attended;

  std::vector<SavedRows> rows() override {
    std::vector<SavedRows> all{{unnormed_TU}, {gate_TQ}};
    add_rows(attended, all);
    return all;
  }
  std::vector<at::Tensor*> made_again() override {
    std::vector<at::Tensor*> all{&unnormed_TU, &attended.qkv_AR, &attended.own_qkv_WP};
    if (attended.a_TQ.defined()) all.push_back(&attended.result.out_TND);
    return all;
  }
  Mixed mixed() const { return {let_through(attended.output_TQ(), gate_TQ)}; }
};

class AttentionMixer final : public Mixer {
 public:
  explicit AttentionMixer(const Site& site)
      : context_(site.context),
        position_(site.position),
        weights_(attention_parameters(site.own_weights())),
        gradients_(attention_parameters(site.own_gradients())) {}

  Mixed forward(const MicroBatchLayout& layout, PartRows& rows, MixerStatePtr* saved) const override {
    const KeyCache* const cache = saved == nullptr ? layout.cached.cache : nullptr;
    Projected projected = project(layout, rows);
    auto state = std::make_unique<AttentionState>();
    state->unnormed_TU = std::move(projected.unnormed_TU);
    state->gate_TQ = std::move(projected.gate_TQ);
    state->attended = attend(context_, layout, std::move(projected.qkv_TP), weights_.sinks_N,
                             cache != nullptr ? cache->of(position_) : CachedKeys{});
    Mixed mixed = state->mixed();
    if (saved != nullptr) *saved = std::move(state);
    return mixed;
  }
  Mixed again(const MicroBatchLayout&, PartRows&, MixerState& saved) const override {
    return static_cast<AttentionState&>(saved).mixed();
  }
  void restore(const MicroBatchLayout& layout, PartRows& rows, MixerState& saved) const override {
    auto& own = static_cast<AttentionState&>(saved);
    Projected projected = project(layout, rows);
    own.unnormed_TU = std::move(projected.unnormed_TU);
    layers::restore(context_, layout, projected.qkv_TP, own.attended);
  }
  at::Tensor backward(const MicroBatchLayout& layout, MixerStatePtr state, Arriving from, PartRows&,
                      PartGradient& to) const override {
    auto& saved = static_cast<AttentionState&>(*state);
    at::Tensor da_TQ = std::move(from.da_TA), a_TQ, dgate_TQ;
    if (context_.shape.gated) {
      const at::Tensor open_TQ = at::sigmoid(saved.gate_TQ);
      a_TQ = saved.attended.output_TQ() * open_TQ;
      dgate_TQ = (da_TQ * a_TQ).mul_(1 - open_TQ);
      da_TQ.mul_(open_TQ);
      saved.gate_TQ.reset();
    }
    at::Tensor dqkv_TP = attend_backward(context_, layout, std::move(da_TQ), saved.attended,
                                         {weights_.sinks_N, gradients_.sinks_N});
    turn(context_, layout, dqkv_TP, ops::Rotation::kBackward);
    if (weights_.q_norm_D.defined()) {
      norm_heads_backward(context_, weights_, saved.unnormed_TU, dqkv_TP, gradients_);
      saved.unnormed_TU.reset();
    }
    if (dgate_TQ.defined()) dqkv_TP = join_gates(context_, dqkv_TP, dgate_TQ);
    to.add(0, std::move(dqkv_TP));
    return a_TQ.defined() ? a_TQ : saved.attended.output_TQ();
  }

 private:
  Projected project(const MicroBatchLayout& layout, PartRows& rows) const {
    Projected result{.qkv_TP = rows.product(0)};
    rows.release();
    at::Tensor& qkv_TP = result.qkv_TP;
    if (context_.shape.gated) {
      Parted parted = part_gates(context_, qkv_TP);
      qkv_TP = std::move(parted.qkv_TP);
      result.gate_TQ = std::move(parted.gate_TQ);
    }
    if (weights_.q_norm_D.defined()) {
      const NormedHeads keys = normed_heads(context_).back();
      result.unnormed_TU = qkv_TP.narrow(1, 0, keys.begin + keys.width).contiguous();
      norm_heads(context_, weights_, qkv_TP);
    }
    turn(context_, layout, qkv_TP, ops::Rotation::kForward);
    return result;
  }

  const LayerContext& context_;
  int64_t position_;
  AttentionParameters weights_, gradients_;
};

}  // namespace

std::unique_ptr<const Part> make_attention(const Site& site) {
  using model::AttentionKind;
  return make_framed(site,
                     {.norm = AttentionKind::kNorm,
                      .behind = AttentionKind::kNormBehind,
                      .out = AttentionKind::kOut,
                      .out_bias = AttentionKind::kOutBias,
                      .in = {{AttentionKind::kQkv, AttentionKind::kQkvBias}}},
                     std::make_unique<AttentionMixer>(site));
}

}  // namespace sluice::layers
