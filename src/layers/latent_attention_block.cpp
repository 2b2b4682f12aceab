#include "layers/latent_attention_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <utility>
#include <vector>

#include "layers/cached_lanes.h"
#include "layers/expert.h"
#include "layers/frame.h"
#include "layers/kv_cache.h"
#include "layers/lane_attention.h"
#include "layers/rank_norm.h"
#include "layers/rotation.h"
#include "model/roles.h"
#include "ops/attention_merge.h"
#include "ops/linear.h"

namespace sluice::layers {

namespace roles = model::roles;

namespace {

// All but `q` and `kv`, which are cut by heads, are whole on every TP rank: x·wᵀ.
struct LatentWeights {
  at::Tensor q_norm_Q, kv_norm_K;
  Matrix q_PQ, kv_PK;
};
LatentWeights latent_weights(const OperationShards& shards) {
  return {shards.vector(roles::kQNorm), shards.vector(roles::kKvNorm), exact_matrix(shards, roles::kQ),
          exact_matrix(shards, roles::kKv)};
}

struct LatentState final : MixerState {
  at::Tensor narrow_SN;  // without norms
  Attended attended;

  std::vector<SavedRows> rows() override {
    std::vector<SavedRows> all{{narrow_SN}};
    add_rows(attended, all);
    return all;
  }
  std::vector<at::Tensor*> made_again() override {
    std::vector<at::Tensor*> all{&narrow_SN, &attended.qkv_AR, &attended.own_qkv_WP};
    if (attended.a_TQ.defined()) all.push_back(&attended.result.out_TND);
    return all;
  }
};

// Narrow rows travel, each with the rotated part of its keys.
class NarrowKeys final : public ExchangedKeys {
 public:
  // `rows_TW`: the lane's narrow rows from which keys and values are made, each with the rotated part behind
  // it. A backward adds to the gradients of both matrix and rows.
  NarrowKeys(const model::LatentAttention& latent, const Matrix& kv_PK, at::Tensor rows_TW,
             const Matrix& dkv_PK = {}, const at::Tensor& drows_TW = {})
      : latent_(latent), kv_PK_(kv_PK), rows_TW_(std::move(rows_TW)), dkv_PK_(dkv_PK), drows_TW_(drows_TW) {}

  int64_t width() const override { return latent_.kv_rank + latent_.rotated; }
  void put(base::Interval rows, const at::Tensor& to_BW) const override {
    at::Tensor(to_BW).copy_(rows_TW_.narrow(0, rows.begin, rows.size()));
  }
  at::Tensor keys_of(const at::Tensor& rows_BW) const override {
    const at::Tensor kv_BHD = times_transposed(narrow_in(rows_BW).contiguous(), kv_PK_)
                                  .unflatten(1, {-1, latent_.unrotated + latent_.values});
    const int64_t rows = rows_BW.size(0), heads = kv_BHD.size(1);
    const at::Tensor keys_BJD =
        at::zeros({rows, 2 * heads, latent_.rotated + latent_.unrotated}, rows_BW.options());
    const at::Tensor k_BHD = keys_BJD.narrow(1, 0, heads), v_BHD = keys_BJD.narrow(1, heads, heads);
    k_BHD.narrow(2, 0, latent_.rotated)
        .copy_(rotated_in(rows_BW).unsqueeze(1).expand({rows, heads, latent_.rotated}));
    k_BHD.narrow(2, latent_.rotated, latent_.unrotated).copy_(kv_BHD.narrow(2, 0, latent_.unrotated));
    v_BHD.narrow(2, 0, latent_.values).copy_(kv_BHD.narrow(2, latent_.unrotated, latent_.values));
    return keys_BJD;
  }
  at::Tensor gradient(const at::Tensor& rows_BW, const at::Tensor& dkeys_BJD) const override {
    const int64_t heads = dkeys_BJD.size(1) / 2;
    const at::Tensor dk_BHD = dkeys_BJD.narrow(1, 0, heads), dv_BHD = dkeys_BJD.narrow(1, heads, heads);
    const at::Tensor dkv_BD =
        at::cat({dk_BHD.narrow(2, latent_.rotated, latent_.unrotated), dv_BHD.narrow(2, 0, latent_.values)},
                2)
            .flatten(1)
            .to(rows_BW.scalar_type());
    if (dkv_PK_.wanted()) add_gradients(kv_PK_, dkv_PK_, dkv_BD, narrow_in(rows_BW));
    return at::cat(
        {times(dkv_BD, kv_PK_).to(dkeys_BJD.scalar_type()), dk_BHD.narrow(2, 0, latent_.rotated).sum(1)}, 1);
  }
  void add(base::Interval rows, const at::Tensor& drows_BW) const override {
    drows_TW_.narrow(0, rows.begin, rows.size()).add_(drows_BW);
  }

 private:
  at::Tensor narrow_in(const at::Tensor& rows_BW) const { return rows_BW.narrow(1, 0, latent_.kv_rank); }
  at::Tensor rotated_in(const at::Tensor& rows_BW) const {
    return rows_BW.narrow(1, latent_.kv_rank, latent_.rotated);
  }

  const model::LatentAttention& latent_;
  Matrix kv_PK_;
  at::Tensor rows_TW_;
  Matrix dkv_PK_;
  at::Tensor drows_TW_;
};

// Parts of a narrow row: for queries, for keys and values, and the rotated part of keys.
at::Tensor queries_in(const model::LatentAttention& latent, const at::Tensor& narrow_RN) {
  return narrow_RN.narrow(1, 0, latent.q_rank);
}
at::Tensor keys_in(const model::LatentAttention& latent, const at::Tensor& narrow_RN) {
  return narrow_RN.narrow(1, latent.q_rank, latent.kv_rank);
}
at::Tensor rotated_in(const model::LatentAttention& latent, const at::Tensor& narrow_RN) {
  return narrow_RN.narrow(1, latent.q_rank + latent.kv_rank, latent.rotated);
}

// Norms of narrow rows, except the rotated part of keys.
class NarrowNorms {
 public:
  // The arguments must outlive this object.
  NarrowNorms(const model::LatentAttention& latent, const LatentWeights& weights,
              const LatentWeights& gradients)
      : latent_(latent), weights_(weights), gradients_(gradients) {}

  at::Tensor forward(const at::Tensor& narrow_SN) const {
    std::vector<at::Tensor> parts;
    if (latent_.q_rank > 0) {
      parts.push_back(
          norm(latent_.q_rank).forward(queries_in(latent_, narrow_SN).contiguous(), weights_.q_norm_Q));
    }
    parts.push_back(
        norm(latent_.kv_rank).forward(keys_in(latent_, narrow_SN).contiguous(), weights_.kv_norm_K));
    parts.push_back(rotated_in(latent_, narrow_SN));
    return at::cat(parts, 1);
  }
  at::Tensor backward(const at::Tensor& dnarrow_SN, const at::Tensor& narrow_SN) const {
    std::vector<at::Tensor> parts;
    if (latent_.q_rank > 0) {
      parts.push_back(norm(latent_.q_rank)
                          .backward(queries_in(latent_, dnarrow_SN).contiguous(),
                                    queries_in(latent_, narrow_SN).contiguous(), weights_.q_norm_Q,
                                    gradients_.q_norm_Q));
    }
    parts.push_back(norm(latent_.kv_rank)
                        .backward(keys_in(latent_, dnarrow_SN).contiguous(),
                                  keys_in(latent_, narrow_SN).contiguous(), weights_.kv_norm_K,
                                  gradients_.kv_norm_K));
    parts.push_back(rotated_in(latent_, dnarrow_SN));
    return at::cat(parts, 1);
  }

 private:
  RankNorm norm(int64_t width) const { return {{}, width, 1, latent_.norm_eps, 0}; }

  const model::LatentAttention& latent_;
  const LatentWeights &weights_, &gradients_;
};

class LatentMixer final : public Mixer {
 public:
  enum In : uint8_t { kQueries, kKvNarrow };  // queries' narrow rows, or queries themselves
  enum Inner : uint8_t { kQ, kKv };

  LatentMixer(const Site& site, const model::LatentAttention& own)
      : context_(site.context),
        latent_(own),
        heads_(heads_at_work(site.context, own)),
        position_(site.position),
        weights_(latent_weights(site.own_weights())),
        gradients_(latent_weights(site.own_gradients())),
        norms_(latent_, weights_, gradients_) {}

  Mixed forward(const RowLayout& layout, PartRows& rows, MixerStatePtr* saved) const override {
    auto state = std::make_unique<LatentState>();
    const at::Tensor q_TD = make_narrow(rows, *state);
    const bool caches = saved == nullptr && layout.cached.cache != nullptr;
    at::Tensor narrow_TN = normed_and_gathered(state->narrow_SN);
    at::Tensor qkv_TP = heads_of(layout, narrow_TN, q_TD);
    if (caches) {
      state->attended.result = attend_with_cache(layout, std::move(qkv_TP), narrow_TN);
    } else {
      std::optional<NarrowKeys> keys;
      if (goes_round(heads_, layout)) keys.emplace(latent_, weights_.kv_PK, travelling(narrow_TN, qkv_TP));
      narrow_TN.reset();
      state->attended = attend(heads_, layout, std::move(qkv_TP), {}, {}, keys ? &*keys : nullptr);
    }
    Mixed mixed{values_of(state->attended)};
    if (saved != nullptr) *saved = std::move(state);
    return mixed;
  }
  Mixed again(const RowLayout&, PartRows&, MixerState& saved) const override {
    return {values_of(static_cast<LatentState&>(saved).attended)};
  }
  void restore(const RowLayout& layout, PartRows& rows, MixerState& saved) const override {
    auto& own = static_cast<LatentState&>(saved);
    const at::Tensor q_TD = make_narrow(rows, own);
    layers::restore(heads_, layout, heads_of(layout, normed_and_gathered(own.narrow_SN), q_TD), own.attended);
  }
  at::Tensor backward(const RowLayout& layout, MixerStatePtr state, Arriving from, PartRows& rows,
                      PartGradient& to) const override;

 private:
  ops::AttentionResult attend_with_cache(const RowLayout& layout, at::Tensor qkv_TP,
                                         const at::Tensor& narrow_TN) const;
  ops::AttentionInput on_narrow_rows(const at::Tensor& qkv_TP, const at::Tensor& rows_R1W) const;
  at::Tensor values_behind(const at::Tensor& out_THW) const;
  ops::AttentionResult attend_before(const RowLayout& layout, const ops::AttentionInput& input) const;
  // Leaves the products for heads' weight gradients.
  void leave_products(const LatentState& saved, const at::Tensor& dq_TD, const at::Tensor& dkv_TD,
                      PartGradient& to) const;
  // The keys' and values' matrix by head, with adapters added.
  at::Tensor kv_by_head() const {
    at::Tensor kv_PK = weights_.kv_PK.w_AB;
    for (const Adapter& adapter : weights_.kv_PK.adapters)
      kv_PK = kv_PK.addmm(adapter.left_NK, adapter.right_KB, 1, adapter.factor);
    const at::Tensor scale_O = scale_of_outputs(weights_.kv_PK);
    if (scale_O.defined()) kv_PK = kv_PK * scale_O.unsqueeze(1);
    return kv_PK.view({heads_.count.queries, latent_.unrotated + latent_.values, latent_.kv_rank});
  }
  at::Tensor for_queries(const at::Tensor& narrow_RN) const { return queries_in(latent_, narrow_RN); }
  at::Tensor for_keys(const at::Tensor& narrow_RN) const { return keys_in(latent_, narrow_RN); }
  at::Tensor rotated_keys(const at::Tensor& narrow_RN) const { return rotated_in(latent_, narrow_RN); }

  bool narrow_queries() const { return latent_.q_rank > 0; }
  // Returns queries if no narrow row makes them.
  at::Tensor make_narrow(PartRows& rows, LatentState& saved) const {
    const at::Tensor queries = rows.product(kQueries), kv_narrow_SN = rows.product(kKvNarrow);
    rows.release();
    saved.narrow_SN = narrow_queries() ? at::cat({queries, kv_narrow_SN}, 1) : kv_narrow_SN;
    return narrow_queries() ? at::Tensor() : queries;
  }
  at::Tensor normed_and_gathered(const at::Tensor& narrow_SN) const {
    return context_.parallel.all_gather_rows(norms_.forward(narrow_SN));
  }
  // Queries, keys and values as attention takes them, rotated. `q_TD`: from make_narrow().
  at::Tensor heads_of(const RowLayout& layout, const at::Tensor& narrow_TN, const at::Tensor& q_TD) const;
  // The lane's travelling rows. Keys of all heads begin with the same rotated part.
  at::Tensor travelling(const at::Tensor& narrow_TN, const at::Tensor& qkv_TP) const {
    const int64_t first_key = heads_.count.queries * heads_.dimension;
    return at::cat({for_keys(narrow_TN), qkv_TP.narrow(1, first_key, latent_.rotated)}, 1);
  }
  void turn(const RowLayout& layout, const at::Tensor& qkv_TP, ops::Rotation rotation) const {
    const int64_t heads = 2 * heads_.count.queries, width = heads_.dimension;
    if (latent_.rope) {
      ops::rotate(qkv_TP.narrow(1, 0, heads * width).view({qkv_TP.size(0), heads, width}),
                  *context_.rotary->find(*latent_.rope, latent_.rotated), layout.position_T, rotation);
    }
    grow_queries(qkv_TP.narrow(1, 0, heads_.count.queries * width), latent_.growth, layout.position_T);
  }
  at::Tensor values_of(const Attended& attended) const {
    return attended.output_TQ().unflatten(1, {-1, heads_.dimension}).narrow(2, 0, latent_.values).flatten(1);
  }
  at::Tensor by_head(const at::Tensor& x_TW) const { return x_TW.unflatten(1, {heads_.count.queries, -1}); }

  const LayerContext& context_;
  const model::LatentAttention& latent_;
  HeadsAtWork heads_;
  int64_t position_;
  LatentWeights weights_, gradients_;
  NarrowNorms norms_;
};

at::Tensor LatentMixer::heads_of(const RowLayout& layout, const at::Tensor& narrow_TN,
                                 const at::Tensor& q_TD) const {
  const int64_t rows = narrow_TN.size(0), heads = heads_.count.queries, width = heads_.dimension;
  const at::Tensor q_THD =
      by_head(q_TD.defined() ? q_TD : times_transposed(for_queries(narrow_TN).contiguous(), weights_.q_PQ));
  const at::Tensor kv_THD = by_head(times_transposed(for_keys(narrow_TN).contiguous(), weights_.kv_PK));
  const int64_t rotated = latent_.rotated, unrotated = latent_.unrotated;
  at::Tensor qkv_T3HD = at::zeros({rows, 3, heads, width}, narrow_TN.options());
  const auto of = [&](int64_t which, int64_t begin, int64_t count) {
    return qkv_T3HD.select(1, which).narrow(2, begin, count);
  };
  of(0, 0, rotated).copy_(halves_of(q_THD.narrow(2, unrotated, rotated)));
  of(0, rotated, unrotated).copy_(q_THD.narrow(2, 0, unrotated));
  of(1, 0, rotated).copy_(halves_of(rotated_keys(narrow_TN)).unsqueeze(1).expand({rows, heads, rotated}));
  of(1, rotated, unrotated).copy_(kv_THD.narrow(2, 0, unrotated));
  of(2, 0, latent_.values).copy_(kv_THD.narrow(2, unrotated, latent_.values));
  at::Tensor qkv_TP = qkv_T3HD.view({rows, 3 * heads * width});
  turn(layout, qkv_TP, ops::Rotation::kForward);
  return qkv_TP;
}

// Attention to cached narrow rows without making keys and values (DeepSeek-V2, 2024, section 2.1.2). A
// query's unrotated part is multiplied with the keys' matrix, so narrow rows act as one wide key head for all
// query heads. The values' matrix is applied to the output.
ops::AttentionInput LatentMixer::on_narrow_rows(const at::Tensor& qkv_TP, const at::Tensor& rows_R1W) const {
  const int64_t rows = qkv_TP.size(0), heads = heads_.count.queries, width = heads_.dimension;
  const at::Tensor q_THD = qkv_TP.narrow(1, 0, heads * width).view({rows, heads, width});
  const at::Tensor kv_HPK = kv_by_head();
  const at::Tensor narrow_HTK =
      at::matmul(q_THD.narrow(2, latent_.rotated, latent_.unrotated).transpose(0, 1),
                 kv_HPK.narrow(1, 0, latent_.unrotated));
  return {.q_TND = at::cat({narrow_HTK.transpose(0, 1), q_THD.narrow(2, 0, latent_.rotated)}, 2),
          .k_TKD = rows_R1W,
          .v_TKD = rows_R1W,
          .scale = heads_.scale};
}

at::Tensor LatentMixer::values_behind(const at::Tensor& out_THW) const {
  const int64_t rows = out_THW.size(0), heads = heads_.count.queries;
  const at::Tensor kv_HPK = kv_by_head();
  const at::Tensor values_HTV = at::matmul(
      out_THW.narrow(2, 0, latent_.kv_rank).transpose(0, 1),
      kv_HPK.narrow(1, latent_.unrotated, latent_.values).transpose(1, 2).to(out_THW.scalar_type()));
  at::Tensor out_THD = at::zeros({rows, heads, heads_.dimension}, out_THW.options());
  out_THD.narrow(2, 0, latent_.values).copy_(values_HTV.transpose(0, 1));
  return out_THD;
}

// Undefined if no row sees cached ones.
ops::AttentionResult LatentMixer::attend_before(const RowLayout& layout,
                                                const ops::AttentionInput& input) const {
  if (layout.cached.before.empty()) return {};
  ops::AttentionResult seen = ops::nothing_seen(input.q_TND);
  ops::attend_blocks(input, layout.cached.before, seen);
  seen.out_TND = values_behind(seen.out_TND);
  return seen;
}

// Puts the rows' own narrow rows into the cache. One lane then makes keys and values of them and attends as
// without a cache. Several lanes each hold a part of the cache and attend to all narrow rows as they are.
ops::AttentionResult LatentMixer::attend_with_cache(const RowLayout& layout, at::Tensor qkv_TP,
                                                    const at::Tensor& narrow_TN) const {
  const CachedKeys cached = layout.cached.cache->of(position_);
  const at::Tensor rows_TW = travelling(narrow_TN, qkv_TP);
  if (!layout.cached.lanes.members.empty()) {
    ops::AttentionResult all =
        attend_over_lanes(*context_.lanes, layout, on_narrow_rows(qkv_TP, rows_TW.unsqueeze(1)), cached);
    all.out_TND = values_behind(all.out_TND);
    return all;
  }
  cached.k_RKD.select(1, 0).index_copy_(0, layout.cached.row_T, rows_TW.narrow(0, 0, layout.tokens));
  ops::AttentionResult before = attend_before(layout, on_narrow_rows(qkv_TP, cached.k_RKD));
  ops::AttentionResult own = attend(heads_, layout, std::move(qkv_TP), {}).result;
  if (!before.out_TND.defined()) return own;
  ops::merge(before, {own.out_TND.to(before.out_TND.scalar_type()), own.lse_NT, {}});
  return {before.out_TND.to(own.out_TND.scalar_type()), before.lse_NT, {}};
}

void LatentMixer::leave_products(const LatentState& saved, const at::Tensor& dq_TD, const at::Tensor& dkv_TD,
                                 PartGradient& to) const {
  const bool queries = narrow_queries() && gradients_.q_PQ.wanted();
  if (!queries && !gradients_.kv_PK.wanted()) return;
  const int64_t q = latent_.q_rank;
  PendingProducts& pending = to.pending();
  const at::Tensor rows_TN = normed_and_gathered(saved.narrow_SN);
  const int kept = pending.keep(rows_TN);
  if (queries) {
    to.inner_product(kQ, pending.keep(dq_TD), {kept, {0, q}},
                     adapter_rows(weights_.q_PQ, gradients_.q_PQ, dq_TD, for_queries(rows_TN).contiguous()));
  }
  if (gradients_.kv_PK.wanted()) {
    to.inner_product(kKv, pending.keep(dkv_TD), {kept, {q, q + latent_.kv_rank}},
                     adapter_rows(weights_.kv_PK, gradients_.kv_PK, dkv_TD, for_keys(rows_TN).contiguous()));
  }
}

at::Tensor LatentMixer::backward(const RowLayout& layout, MixerStatePtr state, Arriving from, PartRows&,
                                 PartGradient& to) const {
  auto& saved = static_cast<LatentState&>(*state);
  const at::Tensor da_TV = std::move(from.da_TA);
  const int64_t rows = da_TV.size(0), heads = heads_.count.queries, width = heads_.dimension;
  at::Tensor da_THD = at::zeros({rows, heads, width}, da_TV.options());
  da_THD.narrow(2, 0, latent_.values).copy_(by_head(da_TV));
  std::optional<NarrowKeys> keys;
  at::Tensor dtravelling_TW;  // from other lanes' queries
  if (goes_round(heads_, layout)) {
    const at::Tensor rows_TW = travelling(normed_and_gathered(saved.narrow_SN), saved.attended.qkv_AR);
    dtravelling_TW = at::zeros_like(rows_TW);
    keys.emplace(latent_, weights_.kv_PK, rows_TW, gradients_.kv_PK, dtravelling_TW);
  }
  at::Tensor dqkv_TP =
      attend_backward(heads_, layout, da_THD.flatten(1), saved.attended, {}, keys ? &*keys : nullptr);
  da_THD.reset();
  if (keys) {
    dqkv_TP.narrow(1, heads * width, latent_.rotated)
        .add_(dtravelling_TW.narrow(1, latent_.kv_rank, latent_.rotated));
  }
  turn(layout, dqkv_TP, ops::Rotation::kBackward);

  const at::Tensor d_T3HD = dqkv_TP.view({rows, 3, heads, width});
  const int64_t rotated = latent_.rotated, unrotated = latent_.unrotated;
  const auto of = [&](int64_t which, int64_t begin, int64_t count) {
    return d_T3HD.select(1, which).narrow(2, begin, count);
  };
  const at::Tensor dq_TD =
      at::cat({of(0, rotated, unrotated), neighbours_of(of(0, 0, rotated))}, 2).flatten(1);
  const at::Tensor dkv_TD = at::cat({of(1, rotated, unrotated), of(2, 0, latent_.values)}, 2).flatten(1);
  const at::Tensor drotated_TR = neighbours_of(of(1, 0, rotated).sum(1));
  at::Tensor dkeys_TK = times(dkv_TD, weights_.kv_PK);
  if (keys) dkeys_TK.add_(dtravelling_TW.narrow(1, 0, latent_.kv_rank));
  const at::Tensor dnarrow_TN = narrow_queries()
                                    ? at::cat({times(dq_TD, weights_.q_PQ), dkeys_TK, drotated_TR}, 1)
                                    : at::cat({dkeys_TK, drotated_TR}, 1);
  const at::Tensor dnarrow_SN =
      norms_.backward(context_.parallel.reduce_scatter_rows(dnarrow_TN), saved.narrow_SN);
  const int64_t q = latent_.q_rank;
  leave_products(saved, dq_TD, dkv_TD, to);
  to.add(kQueries, narrow_queries() ? dnarrow_SN.narrow(1, 0, q).contiguous() : dq_TD);
  to.add(kKvNarrow, dnarrow_SN.narrow(1, q, latent_.narrow() - q).contiguous());
  return to.wants_out() ? values_of(saved.attended) : at::Tensor();
}

}  // namespace

std::unique_ptr<const Part> make_latent_attention(const Site& site, const model::Part& part) {
  constexpr auto kShard = InProduct::Of::kShard;
  const auto& own = std::get<model::LatentAttention>(part.mixer);
  const InProduct queries = own.q_rank > 0 ? InProduct{roles::kQNarrow, {}, kShard, false}
                                           : InProduct{roles::kQ, {}, InProduct::Of::kAllRows, false};
  return make_framed(site, part,
                     {.out = roles::kAttentionOut,
                      .in = {queries, {roles::kKvNarrow, {}, kShard, false}},
                      .inner = {{roles::kQ, {}, {}, false}, {roles::kKv, {}, {}, false}}},
                     std::make_unique<LatentMixer>(site, own));
}

}  // namespace sluice::layers
