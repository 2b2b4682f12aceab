// Named views into flat shards: one struct for a bucket's 16-bit weights and for its gradient accumulators,
// which lie alike (model/parameters.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "base/interval.h"
#include "model/parameters.h"

namespace sluice::layers {

// The parts of a decoder layer on TP rank t. Widths are this rank's; H: hidden. Norms are whole on every
// rank: as accumulators they hold the sum over this rank's rows only.
struct AttentionParameters {
  at::Tensor attention_norm_H;  // this and all vectors below: undefined where the model has none
  at::Tensor qkv_PH;            // rows q, k, v: x·wᵀ
  at::Tensor qkv_bias_P;
  at::Tensor q_norm_D;
  at::Tensor k_norm_D;
  at::Tensor sinks_N;
  at::Tensor attention_out_QH;  // stored [in, out]: a·w
  at::Tensor attention_out_bias_H;
  at::Tensor norm_behind_H;
};

struct MlpParameters {
  at::Tensor mlp_norm_H;  // likewise
  at::Tensor gate_up_GH;  // rows gate, up: x·wᵀ
  at::Tensor down_FH;     // stored [in, out]: a·w
  at::Tensor norm_behind_H;
};

struct EmbeddingParameters {
  at::Tensor table_VH;
  base::Interval vocabulary;  // the rows of the whole table that this rank holds
};

struct HeadParameters {
  at::Tensor final_norm_H;
  at::Tensor output_VH;  // the embedding's table when tied
  base::Interval vocabulary;
};

// `flat` is the rank's shard of the bucket, one-dimensional, tp_shard(bucket, tp, t).size() elements; the
// views share its storage.
AttentionParameters attention_parameters(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t);
MlpParameters mlp_parameters(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t);
EmbeddingParameters embedding_parameters(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t);

// `embedding_flat` is this rank's shard of the embedding bucket where embeddings are tied, else ignored.
HeadParameters head_parameters(const model::ParameterTable& table, const at::Tensor& head_flat,
                               const at::Tensor& embedding_flat, int tp, int t);

}  // namespace sluice::layers
