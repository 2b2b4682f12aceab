// Experts as config.json files describe them. For families' readers.
#pragma once

#include "model/families/reader.h"
#include "model/shape.h"

namespace sluice::model {

// Whose number is num_experts or num_local_experts; `hidden`: of one.
void read_experts(Reader& config, int64_t hidden, Shape& shape);
// Experts by DeepSeek-V3's rule, and which layers have them: all behind the first `absent_dense`, where no
// key says it. Layers that predict further tokens are not trained, and their tensors are not read.
void read_scored_experts(Reader& config, int64_t absent_dense, Shape& shape);
// An inner width of experts or MLPs.
int64_t width(Reader& config, const char* key);

// Says of each layer, in the shape's block types, whether it has experts: first_k_dense_replace (absent:
// `dense`), moe_layer_freq, decoder_sparse_step, mlp_layer_types and mlp_only_layers, those that there are. InputError for
// layers that the model has not.
void read_expert_layers(Reader& config, Shape& shape, int64_t dense = 0);

}  // namespace sluice::model
