// Experts as config.json files describe them. For the model module's own files.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::model {

// Whose number is num_experts or num_local_experts; `hidden`: of one. InputError naming `name`, key and
// value.
void read_experts(const base::Json& config, int64_t hidden, const std::string& name, Shape& shape);
void write_experts(const Shape& shape, base::Json& config);
// An inner width of experts or MLPs.
int64_t width(const base::Json& config, const char* key, const std::string& name);

// Says of each layer, in the shape's block types, whether it has experts: first_k_dense_replace (absent:
// `dense`), moe_layer_freq, decoder_sparse_step and mlp_only_layers, those that there are. InputError naming
// `name`, key and value for layers that the model has not.
void read_expert_layers(const base::Json& config, const std::string& name, Shape& shape, int64_t dense = 0);
// The same of a shape whose first layers alone have an MLP, by that key.
int64_t first_with_experts(const Shape& shape);

// The same layers by mlp_only_layers, and nothing where all have experts.
void write_expert_layers(const Shape& shape, base::Json& config);

// Leaves out types of layers that are all as a shape's without types.
void drop_usual_types(Shape& shape);

}  // namespace sluice::model
