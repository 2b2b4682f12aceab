#include "model/families/experts_keys.h"

#include "model/families/decoder_keys.h"
#include "model/model_ranges.h"

namespace sluice::model {

using base::Json;

// The file's coefficient of a loss that balances experts is ignored: a training run sets its own. The number
// of experts stands under one of two names, or under both.
void read_experts(Reader& config, int64_t hidden, Outline& outline) {
  Experts& experts = outline.experts;
  experts.count =
      config.count(config.says("num_experts") ? "num_experts" : "num_local_experts", kModelRanges.experts);
  config.only("num_local_experts", experts.count);
  experts.per_token = config.count("num_experts_per_tok", {1, experts.count});
  experts.hidden = hidden;
  experts.normalised = config.has("norm_topk_prob");
}

namespace {

void read_routed(Reader& config, const ScoredKeys& keys, Outline& outline) {
  Experts& experts = outline.experts;
  experts.count = config.count(keys.count_key, kModelRanges.experts);
  config.only("num_local_experts", experts.count);
  experts.per_token = config.count(keys.chosen_key, {1, experts.count});
  experts.hidden = width(config, "moe_intermediate_size");
  experts.shared_hidden =
      config.count_or(keys.shared, keys.shared_key, {0, kModelRanges.experts.most}) * experts.hidden;
  experts.factor = config.number_or(keys.factor, keys.factor_key, kModelRanges.factor);
  config.pass({"num_nextn_predict_layers", "num_mtp_layers"});
}

}  // namespace

void read_scored_experts(Reader& config, const ScoredKeys& keys, Outline& outline) {
  read_routed(config, keys, outline);
  Experts& experts = outline.experts;
  experts.normalised = keys.normalised ? !config.lacks(keys.normalised_key) : config.has(keys.normalised_key);
  experts.sigmoid = experts.corrected = true;
  experts.groups = config.count_or(keys.groups, keys.groups_key, {1, experts.count});
  experts.groups_chosen = config.count_or(keys.groups_chosen, "topk_group", {1, experts.groups});
  read_expert_layers(config, outline, keys.dense);
  drop_usual_types(outline);
}

// The greedy choice ignores the groups that files name.
void read_softmax_experts(Reader& config, Outline& outline) {
  config.only("topk_method", "greedy");
  config.only("scoring_func", "softmax");
  config.only("moe_layer_freq", 1);
  config.off("norm_topk_prob");
  config.pass({"n_group", "topk_group"});
  read_routed(config, {}, outline);
  read_expert_layers(config, outline, 0);
  drop_usual_types(outline);
}

void read_mlp_types(Reader& config, Outline& outline) {
  spread_types(outline);
  read_named_layers(config, "mlp_layer_types", "sparse", "dense", outline, [&](int64_t layer, bool sparse) {
    outline.block_types[static_cast<size_t>(layer)].experts = sparse;
  });
  drop_usual_types(outline);
}

int64_t width(Reader& config, const char* key) { return config.count(key, kModelRanges.ffn_hidden); }

void read_expert_layers(Reader& config, Outline& outline, int64_t absent_dense) {
  const int64_t dense = config.count_or(absent_dense, "first_k_dense_replace", {0, kModelRanges.layers.most});
  const int64_t every = config.count_or(1, "moe_layer_freq", kModelRanges.layers);
  const int64_t step = config.count_or(1, "decoder_sparse_step", kModelRanges.layers);
  spread_types(outline);
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    outline.block_types[static_cast<size_t>(layer)].experts =
        layer >= dense && layer % every == 0 && (layer + 1) % step == 0;
  }
  const Json* const list = config.find("mlp_only_layers");
  if (list == nullptr) return;
  if (!list->is_array()) config.refuse("mlp_only_layers", *list, "a list of layers there");
  for (const Json& layer : *list) {
    const bool fits = base::holds_number<int64_t>(layer) && layer >= 0 && layer < outline.layers;
    if (!fits) config.refuse("mlp_only_layers", layer, "layers of the model there");
    outline.block_types[layer.get<size_t>()].experts = false;
  }
}

}  // namespace sluice::model
