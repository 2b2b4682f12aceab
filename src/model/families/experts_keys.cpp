#include "model/families/experts_keys.h"

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/shape_ranges.h"

namespace sluice::model {

using base::Json;

namespace {

// By layer "sparse", with experts, or "dense".
void read_mlp_types(Reader& config, Shape& shape) {
  const Json* const types = config.find("mlp_layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != shape.layers) {
    config.refuse("mlp_layer_types", *types,
                  base::text("a list with a type for each of the ", shape.layers, " layers"));
  }
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const Json& type = types->at(layer);
    if (type != "sparse" && type != "dense")
      config.refuse(base::text("mlp_layer_types[", layer, "]"), type, "sparse or dense");
    shape.block_types[layer].experts = type == "sparse";
  }
}

}  // namespace

// Losses that balance experts are a training run's to ask for, so the file's coefficient of one says nothing.
// Their number stands under one of two names, or under both.
void read_experts(Reader& config, int64_t hidden, Shape& shape) {
  Experts& experts = shape.experts;
  experts.count =
      config.count(config.says("num_experts") ? "num_experts" : "num_local_experts", kShapeRanges.experts);
  config.only("num_local_experts", experts.count);
  experts.per_token = config.count("num_experts_per_tok", {1, experts.count});
  experts.hidden = hidden;
  experts.normalised = config.has("norm_topk_prob");
}

void read_scored_experts(Reader& config, int64_t absent_dense, Shape& shape) {
  Experts& experts = shape.experts;
  experts.count = config.count("n_routed_experts", kShapeRanges.experts);
  config.only("num_local_experts", experts.count);
  experts.per_token = config.count("num_experts_per_tok", {1, experts.count});
  experts.hidden = width(config, "moe_intermediate_size");
  experts.shared_hidden =
      config.count_or(1, "n_shared_experts", {0, kShapeRanges.experts.most}) * experts.hidden;
  experts.normalised = !config.lacks("norm_topk_prob");
  experts.sigmoid = experts.corrected = true;
  experts.groups = config.count_or(1, "n_group", {1, experts.count});
  experts.groups_chosen = config.count_or(1, "topk_group", {1, experts.groups});
  experts.factor = config.number_or(1.0, "routed_scaling_factor", kShapeRanges.factor);
  config.pass({"num_nextn_predict_layers", "num_mtp_layers"});
  read_expert_layers(config, shape, absent_dense);
  drop_usual_types(shape);
}

int64_t width(Reader& config, const char* key) { return config.count(key, kShapeRanges.ffn_hidden); }

void read_expert_layers(Reader& config, Shape& shape, int64_t absent_dense) {
  const int64_t dense = config.count_or(absent_dense, "first_k_dense_replace", {0, kShapeRanges.layers.most});
  const int64_t every = config.count_or(1, "moe_layer_freq", kShapeRanges.layers);
  const int64_t step = config.count_or(1, "decoder_sparse_step", kShapeRanges.layers);
  shape.block_types.resize(static_cast<size_t>(shape.layers));
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    shape.block_types[static_cast<size_t>(layer)].experts =
        layer >= dense && layer % every == 0 && (layer + 1) % step == 0;
  }
  read_mlp_types(config, shape);
  const Json* const list = config.find("mlp_only_layers");
  if (list == nullptr) return;
  if (!list->is_array()) config.refuse("mlp_only_layers", *list, "a list of layers there");
  for (const Json& layer : *list) {
    const bool fits = base::holds_number<int64_t>(layer) && layer >= 0 && layer < shape.layers;
    if (!fits) config.refuse("mlp_only_layers", layer, "layers of the model there");
    shape.block_types[layer.get<size_t>()].experts = false;
  }
}

}  // namespace sluice::model
