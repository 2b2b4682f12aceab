// Experts as config.json files describe them. For families' readers.
#pragma once

#include "model/families/reader.h"
#include "model/shape.h"

namespace sluice::model {

// Whose number is num_experts or num_local_experts; `hidden`: of one.
void read_experts(Reader& config, int64_t hidden, Shape& shape);
// What a family's files call experts by DeepSeek-V3's rule, and what its class takes where a key is absent.
struct ScoredKeys {
  int64_t dense = 0;  // as many first layers have none
  bool normalised = true;
  double factor = 1.0;
  int64_t groups = 1, groups_chosen = 1;
  const char* count_key = "n_routed_experts";
  const char* shared_key = "n_shared_experts";
  const char* factor_key = "routed_scaling_factor";
};
// Experts by that rule, and which layers have them. Layers that predict further tokens are not trained, and
// their tensors are not read.
void read_scored_experts(Reader& config, const ScoredKeys& keys, Shape& shape);
// The same of a router that is a softmax: by DeepSeek-V2's rule, which knows no groups here.
void read_softmax_experts(Reader& config, Shape& shape);
// Which layers have experts, where mlp_layer_types says it.
void read_mlp_types(Reader& config, Shape& shape);
// An inner width of experts or MLPs.
int64_t width(Reader& config, const char* key);

// Says of each layer, in the shape's block types, whether it has experts: first_k_dense_replace (absent:
// `dense`), moe_layer_freq, decoder_sparse_step and mlp_only_layers, those that there are. InputError for
// layers that the model has not.
void read_expert_layers(Reader& config, Shape& shape, int64_t dense = 0);

}  // namespace sluice::model
