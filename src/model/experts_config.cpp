#include "model/experts_config.h"

#include <algorithm>

#include "base/json_fields.h"
#include "model/config_keys.h"
#include "model/shape_ranges.h"

namespace sluice::model {

using base::Json;

// Losses that balance experts are a training run's to ask for, so the file's coefficient of one says nothing.
// Their number stands under one of two names, or under both.
void read_experts(const Json& config, int64_t hidden, const std::string& name, Shape& shape) {
  Experts& experts = shape.experts;
  const char* const count = config.contains("num_experts") ? "num_experts" : "num_local_experts";
  experts.count = base::require_in(config, count, kShapeRanges.experts, name);
  require_only(config, "num_local_experts", experts.count, name);
  experts.per_token =
      base::require_in(config, "num_experts_per_tok", base::Range<int64_t>{1, experts.count}, name);
  experts.hidden = hidden;
  experts.normalised = base::get_or<bool>(config, "norm_topk_prob", false, name);
}

void write_experts(const Shape& shape, Json& config) {
  config["num_experts"] = shape.experts.count;
  config["num_experts_per_tok"] = shape.experts.per_token;
  config["norm_topk_prob"] = shape.experts.normalised;
}

int64_t width(const Json& config, const char* key, const std::string& name) {
  return base::require_in(config, key, kShapeRanges.ffn_hidden, name);
}

void read_expert_layers(const Json& config, const std::string& name, Shape& shape, int64_t absent_dense) {
  const int64_t dense =
      size_or(absent_dense, config, "first_k_dense_replace", {0, kShapeRanges.layers.most}, name);
  const int64_t every = size_or(1, config, "moe_layer_freq", kShapeRanges.layers, name);
  const int64_t step = size_or(1, config, "decoder_sparse_step", kShapeRanges.layers, name);
  shape.block_types.resize(static_cast<size_t>(shape.layers));
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    shape.block_types[static_cast<size_t>(layer)].experts =
        layer >= dense && layer % every == 0 && (layer + 1) % step == 0;
  }
  if (!config.contains("mlp_only_layers") || config.at("mlp_only_layers").is_null()) return;
  const Json& list = config.at("mlp_only_layers");
  if (!list.is_array()) refuse(name, "mlp_only_layers", list, "a list of layers there");
  for (const Json& layer : list) {
    const bool fits = base::holds_number<int64_t>(layer) && layer >= 0 && layer < shape.layers;
    if (!fits) refuse(name, "mlp_only_layers", layer, "layers of the model there");
    shape.block_types[layer.get<size_t>()].experts = false;
  }
}

int64_t first_with_experts(const Shape& shape) {
  int64_t layer = 0;
  while (layer < shape.layers && !shape.block_type(layer).experts) ++layer;
  return layer;
}

void write_expert_layers(const Shape& shape, Json& config) {
  Json dense = Json::array();
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    if (!shape.block_type(layer).experts) dense.push_back(layer);
  }
  if (!dense.empty()) config["mlp_only_layers"] = dense;
}

void drop_usual_types(Shape& shape) {
  Shape usual = shape;
  usual.block_types.clear();
  if (std::ranges::count(shape.block_types, usual.block_type(0)) == shape.layers) shape.block_types.clear();
}

}  // namespace sluice::model
