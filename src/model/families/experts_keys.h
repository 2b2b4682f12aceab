// Experts as config.json files describe them. For families' readers.
#pragma once

#include "model/families/reader.h"
#include "model/outline.h"

namespace sluice::model {

// Reads experts: their number num_experts or num_local_experts; `hidden` is the inner width of one expert.
void read_experts(Reader& config, int64_t hidden, Outline& outline);
// A family's key names for experts by DeepSeek-V3's rule, and its class's defaults for absent keys.
struct ScoredKeys {
  int64_t dense = 0;  // number of first layers without experts
  bool normalised = true;
  double factor = 1.0;
  int64_t groups = 1, groups_chosen = 1;
  int64_t shared = 1;  // number of shared experts, each as wide as a routed one
  const char* count_key = "n_routed_experts";
  const char* shared_key = "n_shared_experts";
  const char* factor_key = "routed_scaling_factor";
  const char* chosen_key = "num_experts_per_tok";
  const char* groups_key = "n_group";
  const char* normalised_key = "norm_topk_prob";
};
// Reads experts by that rule, and which layers have them. Layers that predict further tokens are not trained,
// and their tensors are not read.
void read_scored_experts(Reader& config, const ScoredKeys& keys, Outline& outline);
// Reads experts with a softmax router by DeepSeek-V2's rule, without groups.
void read_softmax_experts(Reader& config, Outline& outline);
// Reads from mlp_layer_types, if the file has it, which layers have experts.
void read_mlp_types(Reader& config, Outline& outline);
// Reads an inner width of experts or MLPs.
int64_t width(Reader& config, const char* key);

// Sets in the outline's block types which layers have experts, from those keys that the file has:
// first_k_dense_replace (absent: `dense`), moe_layer_freq, decoder_sparse_step and mlp_only_layers.
// InputError for layers that the model does not have.
void read_expert_layers(Reader& config, Outline& outline, int64_t dense = 0);

}  // namespace sluice::model
