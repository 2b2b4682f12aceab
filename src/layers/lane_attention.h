// Attention of one lane part, with the exchange of its micro-batch: heads within head groups, ring blocks of
// keys and values between the groups, both, or nothing.
//
// Row and width names: T the lane's rows; A rows that it attends with (head_exchange.h); W rows of its
// unshared sequences beside them. P all its query, key and value heads × head_dim, Q its query heads ×
// head_dim; R and O the same for the heads that it attends with.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "layers/context.h"
#include "layers/exchanged_keys.h"
#include "layers/kv_cache.h"
#include "layers/operation.h"
#include "layers/row_layout.h"
#include "model/head_parts.h"
#include "model/layer.h"
#include "ops/attention.h"

namespace sluice::layers {

// This TP rank's heads, and how their scores are computed.
struct HeadsAtWork {
  LaneChannel* lanes = nullptr;  // as in LayerContext
  model::HeadCounts count;
  int64_t dimension = 0;
  double scale = 1;
  int64_t window = 0;  // window and cap as in model::Attention
  double cap = 0;
  bool causal = true;
  int64_t value_dimensions = 0;  // as in ops::AttentionInput
};
HeadsAtWork heads_at_work(const LayerContext& context, const model::Attention& attention);
HeadsAtWork heads_at_work(const LayerContext& context, const model::LatentAttention& attention);

// Tensors that a forward keeps for backward.
struct Attended {
  at::Tensor qkv_AR;            // queries and keys are rotated
  ops::AttentionResult result;  // for these rows and heads
  at::Tensor a_TQ;  // all heads' outputs of the lane's rows; undefined: no head exchange, result has them
  // With a head exchange: all heads of the lane's unshared sequences (RowLayout::own), and their
  // log-sum-exps. Their outputs are in a_TQ.
  at::Tensor own_qkv_WP;
  ops::AttentionResult own;

  // Attention's output for the lane's own rows.
  at::Tensor output_TQ() const { return a_TQ.defined() ? a_TQ : result.out_TND.flatten(1); }
};

// Attention sinks of this TP rank's query heads and their gradients, added to by backward; undefined: none.
struct Sinks {
  at::Tensor sinks_N;
  at::Tensor gradients_N;
};

// qkv_TP [rows, P] is rotated. Each of these functions is collective over the micro-batch's lanes. `cached`:
// the layer's cache, if the layout has one; the rows' keys and values are written there first. `keys`: rows
// that travel in place of keys and values; null: these travel.
Attended attend(const HeadsAtWork& heads, const RowLayout& layout, at::Tensor qkv_TP,
                const at::Tensor& sinks_N, const CachedKeys& cached = {},
                const ExchangedKeys* keys = nullptr);

// Appends the tensors of `attended` that have rows.
void add_rows(Attended& attended, std::vector<SavedRows>& rows);
// Recomputes everything except attention's results (outputs, log-sum-exps), bit for bit.
void restore(const HeadsAtWork& heads, const RowLayout& layout, const at::Tensor& qkv_TP, Attended& attended);

// The gradient of qkv_TP, zero in inert rows. Only output_TQ() of `attended` stays valid. `keys`: as in
// attend(); gradients that other lanes' queries give to these rows go to `keys` alone.
at::Tensor attend_backward(const HeadsAtWork& heads, const RowLayout& layout, at::Tensor da_TQ,
                           Attended& attended, const Sinks& sinks, const ExchangedKeys* keys = nullptr);

// Whether other rows can travel in place of keys and values: heads are not exchanged beforehand, and no
// window makes lanes fetch single rows.
bool goes_round(const HeadsAtWork& heads, const RowLayout& layout);

}  // namespace sluice::layers
