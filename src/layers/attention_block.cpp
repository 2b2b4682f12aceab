#include "layers/attention_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "layers/carried_rows.h"
#include "layers/frame.h"
#include "layers/kv_cache.h"
#include "layers/lane_attention.h"
#include "layers/rank_norm.h"
#include "layers/rotation.h"
#include "model/roles.h"

namespace sluice::layers {

namespace roles = model::roles;

namespace {

// Vectors of norms and sinks. Undefined if a model lacks them.
struct AttentionVectors {
  at::Tensor q_norm_D, k_norm_D, sinks_N;
  at::Tensor v_norm_D = {};  // ones: no parameter
};
AttentionVectors attention_vectors(const OperationShards& shards) {
  return {shards.vector(roles::kQNorm), shards.vector(roles::kKNorm), shards.vector(roles::kSinks)};
}

// Queries, keys or values: their columns in rows of qkv_TP, and their norm.
struct NormedHeads {
  at::Tensor AttentionVectors::*norm_D;
  int64_t begin;
  int64_t width;
  RankNorm norm;

  at::Tensor in(const at::Tensor& heads_TW) const { return heads_TW.narrow(1, begin, width); }
  // Runs of columns that are normed together, a run per row.
  at::Tensor rows_in(const at::Tensor& heads_TW) const {
    return in(heads_TW).reshape({-1, norm.width / norm.ranks});
  }
};
struct ProjectedHeads {
  at::Tensor unnormed_TU;
  at::Tensor qkv_TP;  // rotated queries and keys, and values
  at::Tensor gate_TQ;
};

// An in-product's result, split into gates and the rest. In files, queries and gates may alternate by head.
struct Parted {
  at::Tensor qkv_TP, gate_TQ;
};

// Heads' outputs by gate: one column each, or a head's columns if heads have gates. [T, gates, …]
at::Tensor by_gate(const at::Tensor& x_TQ, const at::Tensor& gate_TQ) {
  return x_TQ.unflatten(1, {gate_TQ.size(1), -1});
}

// The input of the output matrix: attention's output times the sigmoids of its gates.
at::Tensor let_through(const at::Tensor& attended_TQ, const at::Tensor& gate_TQ) {
  if (!gate_TQ.defined()) return attended_TQ;
  return (by_gate(attended_TQ, gate_TQ) * at::sigmoid(gate_TQ).unsqueeze(2)).flatten(1);
}

struct AttentionState final : MixerState {
  at::Tensor unnormed_TU;  // queries, keys and values before their norms; undefined where heads have none
  at::Tensor gate_TQ;      // before the sigmoid; undefined without gates
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
  AttentionMixer(const Site& site, const model::Attention& own)
      : own_(own),
        parallel_(site.context.parallel),
        heads_(heads_at_work(site.context, own)),
        rotary_(own.rope ? site.context.rotary->find(*own.rope, own.rotated) : nullptr),
        position_(site.position),
        lender_trains_(own.sharing != model::KeySharing::kOwn &&
                       model::lender_of(site.table.program, own.key_slot) >=
                           site.table.program.first_trained()),
        weights_(attention_vectors(site.own_weights())),
        gradients_(attention_vectors(site.own_gradients())) {
    const at::Tensor like = site.own_weights().tensor(roles::kQkv);
    if (!like.defined()) return;  // weight gradients alone need no norms
    for (const NormedHeads& heads : normed_heads()) {
      const bool weighs = heads.norm_D != &AttentionVectors::v_norm_D && own.head_norm_style.weights;
      if (!weighs) weights_.*heads.norm_D = at::ones({heads.norm.width / heads.norm.ranks}, like.options());
    }
  }

  Mixed forward(const RowLayout& layout, PartRows& rows, MixerStatePtr* saved) const override {
    const KvCache* const cache = saved == nullptr ? layout.cached.cache : nullptr;
    ProjectedHeads projected = project(layout, rows);
    auto state = std::make_unique<AttentionState>();
    state->unnormed_TU = std::move(projected.unnormed_TU);
    state->gate_TQ = std::move(projected.gate_TQ);
    if (own_.sharing == model::KeySharing::kLends) {
      layout.carried->keys[own_.key_slot].kv_TK =
          projected.qkv_TP.narrow(1, q_width(), 2 * k_width()).clone(at::MemoryFormat::Contiguous);
    }
    state->attended = attend(heads_, layout, std::move(projected.qkv_TP), weights_.sinks_N,
                             cache != nullptr ? cache->of(position_) : CachedKeys{});
    Mixed mixed = state->mixed();
    if (saved != nullptr) *saved = std::move(state);
    return mixed;
  }
  Mixed again(const RowLayout&, PartRows&, MixerState& saved) const override {
    return static_cast<AttentionState&>(saved).mixed();
  }
  void restore(const RowLayout& layout, PartRows& rows, MixerState& saved) const override {
    auto& own = static_cast<AttentionState&>(saved);
    ProjectedHeads projected = project(layout, rows);
    own.unnormed_TU = std::move(projected.unnormed_TU);
    layers::restore(heads_, layout, projected.qkv_TP, own.attended);
  }
  at::Tensor backward(const RowLayout& layout, MixerStatePtr state, Arriving from, PartRows&,
                      PartGradient& to) const override {
    auto& saved = static_cast<AttentionState&>(*state);
    at::Tensor da_TQ = std::move(from.da_TA), a_TQ, dgate_TQ;
    if (own_.gated) {
      const at::Tensor open_TG1 = at::sigmoid(saved.gate_TQ).unsqueeze(2);
      const at::Tensor da_TGX = by_gate(da_TQ, saved.gate_TQ);
      const at::Tensor a_TGX = by_gate(saved.attended.output_TQ(), saved.gate_TQ) * open_TG1;
      dgate_TQ = da_TGX * a_TGX;
      if (own_.gates_of_heads) dgate_TQ = dgate_TQ.sum(2, /*keepdim=*/true);
      dgate_TQ = dgate_TQ.mul_(1 - open_TG1).squeeze(2);
      a_TQ = a_TGX.flatten(1);
      da_TGX.mul_(open_TG1);
      saved.gate_TQ.reset();
    }
    at::Tensor dqkv_TP = attend_backward(heads_, layout, std::move(da_TQ), saved.attended,
                                         {weights_.sinks_N, gradients_.sinks_N});
    share_gradient(layout, dqkv_TP);
    grow(layout, dqkv_TP);
    const bool behind = own_.head_norm_style.behind_rotation;
    if (!behind) turn(layout, dqkv_TP, ops::Rotation::kBackward);
    if (normed()) {
      norm_heads_backward(saved.unnormed_TU, dqkv_TP);
      saved.unnormed_TU.reset();
    }
    if (behind) turn(layout, dqkv_TP, ops::Rotation::kBackward);
    if (own_.keys_are_values && own_.makes_keys()) dqkv_TP = join_values(dqkv_TP);
    if (dgate_TQ.defined()) dqkv_TP = join_gates(dqkv_TP, dgate_TQ);
    to.add(0, std::move(dqkv_TP));
    return a_TQ.defined() ? a_TQ : saved.attended.output_TQ();
  }

 private:
  ProjectedHeads project(const RowLayout& layout, PartRows& rows) const {
    ProjectedHeads result{.qkv_TP = rows.product(0)};
    rows.release();
    at::Tensor& qkv_TP = result.qkv_TP;
    if (own_.gated) {
      Parted parted = part_gates(qkv_TP);
      qkv_TP = std::move(parted.qkv_TP);
      result.gate_TQ = std::move(parted.gate_TQ);
    }
    if (own_.keys_are_values && own_.makes_keys())
      qkv_TP = at::cat({qkv_TP, qkv_TP.narrow(1, q_width(), k_width())}, 1);
    const bool behind = own_.head_norm_style.behind_rotation;
    if (behind) turn(layout, qkv_TP, ops::Rotation::kForward);
    if (normed()) {
      const NormedHeads last = normed_heads().back();
      result.unnormed_TU = qkv_TP.narrow(1, 0, last.begin + last.width).clone(at::MemoryFormat::Contiguous);
      norm_heads(qkv_TP);
    }
    if (!behind) turn(layout, qkv_TP, ops::Rotation::kForward);
    grow(layout, qkv_TP);
    if (!own_.makes_keys()) qkv_TP = at::cat({qkv_TP, borrowed(layout)}, 1);
    return result;
  }
  const at::Tensor& borrowed(const RowLayout& layout) const {
    SLUICE_ASSERT(layout.carried && layout.carried->keys[own_.key_slot].kv_TK.defined(),
                  "keys that no layer lent");
    return layout.carried->keys[own_.key_slot].kv_TK;
  }
  // Hands the borrowers' gradient of shared keys and values to their lender, for its rotation and norms.
  void share_gradient(const RowLayout& layout, at::Tensor& dqkv_TP) const {
    const int64_t q = q_width(), kv = 2 * k_width();
    if (own_.sharing == model::KeySharing::kBorrows) {
      if (lender_trains_) layout.carried->add_key_gradient(own_.key_slot, dqkv_TP.narrow(1, q, kv));
      dqkv_TP = dqkv_TP.narrow(1, 0, q).contiguous();
    } else if (own_.sharing == model::KeySharing::kLends) {
      const at::Tensor dkv_TK = layout.carried->take_key_gradient(own_.key_slot);
      if (dkv_TK.defined()) dqkv_TP.narrow(1, q, kv).add_(dkv_TK);
    }
  }
  bool normed() const { return own_.head_norm != model::QkNorm::kNone; }
  int64_t q_width() const { return heads_.count.queries * own_.head_dim; }
  int64_t k_width() const { return heads_.count.keys * own_.head_dim; }

  std::vector<NormedHeads> normed_heads() const {
    if (!normed()) return {};
    const int64_t q = q_width(), k = k_width();
    const bool all = own_.head_norm == model::QkNorm::kAllHeads;
    const int64_t tp = parallel_.tp;
    const auto of = [&](int64_t local) {
      return all ? RankNorm{parallel_, local * tp, tp, own_.norm_eps, own_.norm_offset}
                 : RankNorm{{}, own_.head_dim, 1, own_.norm_eps, own_.norm_offset};
    };
    std::vector<NormedHeads> normed{{&AttentionVectors::q_norm_D, 0, q, of(q)}};
    if (!own_.makes_keys()) return normed;
    normed.push_back({&AttentionVectors::k_norm_D, q, k, of(k)});
    if (own_.normed_values)
      normed.push_back({&AttentionVectors::v_norm_D, q + k, k, {{}, own_.head_dim, 1, own_.norm_eps, 0}});
    return normed;
  }
  // The gradient of the one product that gives both keys and values.
  at::Tensor join_values(const at::Tensor& dqkv_TP) const {
    const int64_t q = q_width(), k = k_width();
    at::Tensor dproduct_TP = dqkv_TP.narrow(1, 0, q + k).contiguous();
    dproduct_TP.narrow(1, q, k).add_(dqkv_TP.narrow(1, q + k, k));
    return dproduct_TP;
  }
  void norm_heads(const at::Tensor& qkv_TP) const {
    for (const NormedHeads& heads : normed_heads()) {
      const at::Tensor y_RD = heads.norm.forward(heads.rows_in(qkv_TP), weights_.*heads.norm_D);
      const at::Tensor to = heads.in(qkv_TP);
      to.copy_(y_RD.view(to.sizes()));
    }
  }
  // Takes gradients of normed queries and keys in dqkv_TP to those before the norms. Adds the norms' own
  // gradients.
  void norm_heads_backward(const at::Tensor& unnormed_TU, const at::Tensor& dqkv_TP) const {
    for (const NormedHeads& heads : normed_heads()) {
      const at::Tensor dx_RD = heads.norm.backward(heads.rows_in(dqkv_TP), heads.rows_in(unnormed_TU),
                                                   weights_.*heads.norm_D, gradients_.*heads.norm_D);
      const at::Tensor to = heads.in(dqkv_TP);
      to.copy_(dx_RD.view(to.sizes()));
    }
  }
  // Queries and keys lie side by side and rotate as one.
  void turn(const RowLayout& layout, const at::Tensor& qkv_TP, ops::Rotation rotation) const {
    if (rotary_ == nullptr) return;
    const int64_t keys = own_.makes_keys() ? heads_.count.keys : 0;
    const int64_t heads = heads_.count.queries + keys, dimension = own_.head_dim;
    turn_heads(qkv_TP.narrow(1, 0, heads * dimension).view({qkv_TP.size(0), heads, dimension}), own_.turning,
               *rotary_, layout.position_T, rotation);
  }
  void grow(const RowLayout& layout, const at::Tensor& qkv_TP) const {
    grow_queries(qkv_TP.narrow(1, 0, heads_.count.queries * own_.head_dim), own_.growth, layout.position_T);
  }
  Parted part_gates(const at::Tensor& product_TP) const {
    if (own_.gates_apart) {
      const int64_t gates = own_.gates_of_heads ? heads_.count.queries : q_width();
      const int64_t qkv = product_TP.size(1) - gates;
      return {product_TP.narrow(1, 0, qkv).contiguous(), product_TP.narrow(1, qkv, gates).contiguous()};
    }
    const int64_t heads = heads_.count.queries, dimension = own_.head_dim, q = heads * dimension;
    const at::Tensor both_TN2D = product_TP.narrow(1, 0, 2 * q).unflatten(1, {heads, 2, dimension});
    return {
        at::cat({both_TN2D.select(2, 0).flatten(1), product_TP.narrow(1, 2 * q, product_TP.size(1) - 2 * q)},
                1),
        both_TN2D.select(2, 1).flatten(1)};
  }
  // The adjoint: joins their gradients again.
  at::Tensor join_gates(const at::Tensor& dqkv_TP, const at::Tensor& dgate_TQ) const {
    if (own_.gates_apart) return at::cat({dqkv_TP, dgate_TQ}, 1);
    const int64_t heads = heads_.count.queries, dimension = own_.head_dim, q = heads * dimension;
    const auto by_head = [&](const at::Tensor& x_TQ) { return x_TQ.unflatten(1, {heads, 1, dimension}); };
    return at::cat({at::cat({by_head(dqkv_TP.narrow(1, 0, q)), by_head(dgate_TQ)}, 2).flatten(1),
                    dqkv_TP.narrow(1, q, dqkv_TP.size(1) - q)},
                   1);
  }

  const model::Attention& own_;
  TensorParallel parallel_;
  HeadsAtWork heads_;
  const ops::RotaryTable* rotary_;  // null: no rotation
  int64_t position_;
  bool lender_trains_;  // shared keys: whether their gradients are wanted
  AttentionVectors weights_, gradients_;
};

}  // namespace

std::unique_ptr<const Part> make_attention(const Site& site, const model::Part& part) {
  return make_framed(site, part,
                     {.out = roles::kAttentionOut,
                      .out_bias = roles::kAttentionOutBias,
                      .in = {{roles::kQkv, roles::kQkvBias}}},
                     std::make_unique<AttentionMixer>(site, std::get<model::Attention>(part.mixer)));
}

}  // namespace sluice::layers
