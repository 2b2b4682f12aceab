// The attention half of a decoder layer: x + W_o·attention(rotary(norms of heads(W_qkv·norm(x) + b_qkv))),
// the norms of queries and keys and the bias where the model has them; or with the norm behind it
// (residual.h).
//
// Row names: S rows of this TP rank's shard, T all rows of the micro-batch; S = T ÷ tp.
// Widths: H hidden, Q this rank's query heads × head_dim, U = Q + its key heads', P = U + its values'.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/lane_attention.h"
#include "layers/micro_batch_layout.h"
#include "layers/parameters.h"
#include "layers/part.h"
#include "layers/site.h"

namespace sluice::layers {

// What the backward needs of a forward. The norm's scale and what drop_exchanged leaves out may be missing:
// restore_attention makes them again.
struct AttentionSaved {
  at::Tensor x_SH;
  at::Tensor inverse_rms_S;
  at::Tensor unnormed_TU;  // queries and keys before their norms; undefined where heads have none
  at::Tensor product_SH;   // what a norm behind took; may be missing
  at::Tensor gate_TQ;      // of heads that have gates, before the sigmoid
  Attended attended;
};

// What the weight gradients need of a backward; undefined of what is not trained.
struct AttentionDeferred {
  at::Tensor normed_SH;  // input of qkv
  at::Tensor dqkv_TP;
  at::Tensor a_TQ;  // input of the output matrix
  at::Tensor dy_SH;
  at::Tensor dy_TH;                  // dy gathered, while it is at hand; else undefined and gathered again
  std::vector<NarrowRows> qkv, out;  // of the matrices' adapters
};

std::vector<SavedRows> rows_of(AttentionSaved& saved);
std::vector<SavedRows> rows_of(AttentionDeferred& deferred);

// `saved` null: nothing is kept (evaluation). `cached` as of attend().
at::Tensor attention_forward(const LayerContext& context, const MicroBatchLayout& layout,
                             const AttentionParameters& weights, const at::Tensor& x_SH,
                             AttentionSaved* saved, const CachedKeys& cached = {});

// Makes what is missing of `saved` again, bit for bit, from its input; attention itself is not run. With
// tp > 1 one all-gather; heads are exchanged again.
void restore_attention(const LayerContext& context, const MicroBatchLayout& layout,
                       const AttentionParameters& weights, AttentionSaved& saved);

// The forward's result from what `saved` has of it in any case. With tp > 1 one reduce-scatter.
at::Tensor attention_result(const LayerContext& context, const AttentionParameters& weights,
                            const AttentionSaved& saved);

// REQUIRES: nothing of `saved` is missing. Consumes it (its qkv becomes dqkv); adds the norm's weight
// gradient; fills `deferred`. Returns dx_SH.
at::Tensor attention_backward_input(const LayerContext& context, const MicroBatchLayout& layout,
                                    const AttentionParameters& weights, AttentionSaved saved,
                                    const at::Tensor& dy_SH, const AttentionParameters& gradients,
                                    AttentionDeferred& deferred);

void attention_backward_weight(const LayerContext& context, AttentionDeferred deferred,
                               const AttentionParameters& gradients);

std::unique_ptr<const Part> make_attention(const Site& site);

}  // namespace sluice::layers
