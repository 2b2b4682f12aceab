// Named views into flat shards: one struct for an operation's 16-bit weights and for its gradient
// accumulators, which lie alike (model/parameters.h) but are there of trained buckets only.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "layers/product.h"
#include "model/parameters.h"

namespace sluice::layers {

// This rank's flat shard of a bucket, undefined where it has none: one-dimensional, model::shard_of(bucket,
// cut).size() elements.
using FlatShards = std::function<at::Tensor(int bucket)>;

// What an operation reads on a rank, or its gradients; the views share the shards' storage. What there is
// not, or what is not trained of gradients, is undefined.
class OperationShards {
 public:
  enum class Of : uint8_t { kWeights, kGradients };
  // Where `flats` is empty there is nothing.
  OperationShards(const model::ParameterTable& table, int64_t position, const FlatShards& flats, Of of,
                  const model::Cut& cut, const Narrowing& narrowing = {});

  at::Tensor tensor(std::string_view role) const { return find(role, model::Factor::kNone, 0); }
  at::Tensor vector(std::string_view role) const;
  Matrix matrix(std::string_view role) const;
  // The rows of a parameter that is cut as one group; of gradients only where it is trained.
  base::Interval rows(std::string_view role) const;

 private:
  struct View {
    const model::Parameter* parameter;
    at::Tensor tensor;
  };
  at::Tensor find(std::string_view role, model::Factor factor, int adapted) const;

  const std::vector<model::Parameter>& parameters_;  // the operation's own, of all its buckets
  double adapter_factor_ = 0;
  model::Cut cut_;
  Narrowing narrowing_;
  std::vector<View> views_;
};

// The parts of a decoder layer on TP rank t. Widths are this rank's; H: hidden. Norms are whole on every
// rank: as accumulators they hold the sum over this rank's rows only.
struct AttentionParameters {
  at::Tensor attention_norm_H;  // this and all vectors below: undefined where the model has none
  Matrix qkv_PH;                // rows q, k, v: x·wᵀ
  at::Tensor qkv_bias_P;
  at::Tensor q_norm_D;
  at::Tensor k_norm_D;
  at::Tensor sinks_N;
  Matrix attention_out_QH;  // stored [in, out]: a·w
  at::Tensor attention_out_bias_H;
  at::Tensor norm_behind_H;
};

struct LatentParameters {
  at::Tensor norm_H;
  at::Tensor q_narrow_QH;  // these four whole on every TP rank: x·wᵀ
  at::Tensor q_norm_Q;
  at::Tensor kv_narrow_KH;  // the keys' rotated part behind what keys and values are made from
  at::Tensor kv_norm_K;
  at::Tensor q_PQ;   // of each head rows unrotated, rotated: x·wᵀ
  at::Tensor kv_PK;  // of each head rows of unrotated keys, values: x·wᵀ
  Matrix out_VH;     // stored [in, out]: a·w
};

struct MlpParameters {
  at::Tensor mlp_norm_H;  // likewise
  Matrix gate_up_GH;      // rows gate, up: x·wᵀ
  Matrix down_FH;         // stored [in, out]: a·w
  at::Tensor norm_behind_H;
};

struct ExpertsParameters {
  at::Tensor norm_H;
  at::Tensor router_EH;            // of all experts
  at::Tensor gate_up_EGH;          // of each of this rank's rows gate, up: x·wᵀ
  at::Tensor down_EFH;             // of each of this rank's stored [in, out]: a·w
  at::Tensor router_correction_E;  // these two of all experts; undefined where there are none
  at::Tensor router_loads_E;
  at::Tensor router_bias_E;      // these three: undefined where there are none
  at::Tensor gate_up_bias_EG;    // of this rank's
  at::Tensor down_bias_EH;       // of all experts, whole on every rank
  at::Tensor shared_gate_up_GH;  // this and all below: undefined where nothing is shared
  at::Tensor shared_down_FH;
  at::Tensor shared_gate_1H;
};

struct RecurrentParameters {
  at::Tensor norm_H;
  // x·wᵀ, with rows as model/recurrent_kind.h says; what the first has of the others is undefined in them.
  Matrix qkv_CH;
  at::Tensor decay_narrow_LH;
  Matrix rates_RH;  // of GLA [R, L]
  Matrix gate_VH;
  at::Tensor convolution_CW;  // this and its bias as the rows lie
  at::Tensor convolution_bias_C;
  at::Tensor decay_N;  // these three by value head, biases by decay
  at::Tensor step_bias_N;
  at::Tensor skip_N;       // of Mamba-2
  at::Tensor head_norm_D;  // of a head's width, of Mamba-2 of all heads'
  Matrix out_VH;           // stored [in, out]: a·w
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

AttentionParameters attention_parameters(const OperationShards& shards);
LatentParameters latent_parameters(const OperationShards& shards);
MlpParameters mlp_parameters(const OperationShards& shards);
// `own`: how many of the model's experts this rank computes.
ExpertsParameters experts_parameters(const OperationShards& shards, int64_t experts, int64_t own);
RecurrentParameters recurrent_parameters(const OperationShards& shards);
EmbeddingParameters embedding_parameters(const OperationShards& shards);
HeadParameters head_parameters(const OperationShards& shards);

}  // namespace sluice::layers
