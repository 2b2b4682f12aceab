// Attention of one lane's lane part, with whatever the micro-batch's lanes exchange for it: heads within
// groups, blocks of keys and values between these, both, or nothing.
//
// Row and width names: T the lane's rows, A those that it attends with (head_exchange.h), W those of its own
// sequences beside them; P all its query, key and value heads × head_dim, Q its query heads', R and O the
// same of the heads that it attends with.
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

// This TP rank's heads, and what becomes of their scores.
struct HeadsAtWork {
  LaneChannel* lanes = nullptr;  // as of LayerContext
  model::HeadCounts count;
  int64_t dimension = 0;
  double scale = 1;
  int64_t window = 0;  // as of model::Attention, and the cap
  double cap = 0;
  bool causal = true;
};
HeadsAtWork heads_at_work(const LayerContext& context, const model::Attention& attention);
HeadsAtWork heads_at_work(const LayerContext& context, const model::LatentAttention& attention);

// What a backward needs of a forward.
struct Attended {
  at::Tensor qkv_AR;            // queries and keys rotated
  ops::AttentionResult result;  // of those rows and heads
  at::Tensor a_TQ;  // the lane's tokens of all heads; undefined: heads stay, and it is result's output
  // Of sequences that are the lane's alone where heads are exchanged (RowLayout::own): of all heads,
  // and their log-sum-exp. Their output is in a_TQ.
  at::Tensor own_qkv_WP;
  ops::AttentionResult own;

  // What the layer goes on with.
  at::Tensor output_TQ() const { return a_TQ.defined() ? a_TQ : result.out_TND.flatten(1); }
};

// Of this TP rank's query heads, and the gradients that a backward adds to; undefined without sinks.
struct Sinks {
  at::Tensor sinks_N;
  at::Tensor gradients_N;
};

// qkv_TP [rows, P] is rotated. All lanes of the micro-batch call each of these at once. `cached`: of the
// layer, where the layout has a cache; its rows' keys and values are put there first. `keys`: what goes round
// where these do; null: they do themselves.
Attended attend(const HeadsAtWork& heads, const RowLayout& layout, at::Tensor qkv_TP,
                const at::Tensor& sinks_N, const CachedKeys& cached = {},
                const ExchangedKeys* keys = nullptr);

// Adds what it has by row.
void add_rows(Attended& attended, std::vector<SavedRows>& rows);
// Makes all again but what takes attending, the output and the log-sum-exp; to the bit.
void restore(const HeadsAtWork& heads, const RowLayout& layout, const at::Tensor& qkv_TP, Attended& attended);

// The gradient of qkv_TP, zero in inert rows. Leaves of `attended` output_TQ() alone. `keys`: as of attend();
// what other lanes' queries give to their gradients is in theirs alone.
at::Tensor attend_backward(const HeadsAtWork& heads, const RowLayout& layout, at::Tensor da_TQ,
                           Attended& attended, const Sinks& sinks, const ExchangedKeys* keys = nullptr);

// Whether something other than keys and values may go round in their place: their heads are not exchanged
// before, and no window has lanes ask for rows.
bool goes_round(const HeadsAtWork& heads, const RowLayout& layout);

}  // namespace sluice::layers
