// Figures of a whole model that planning derives from its shape.
#pragma once

#include "model/parameter.h"
#include "model/shape.h"

namespace sluice::model {

// The width of a gated MLP that needs at most the working memory of any layer, with experts or without. For
// each element of width, an expert's visits hold two rows of gate and up and one of SwiGLU; an MLP holds
// four. If lanes divide experts, visits hold nothing.
int64_t least_ffn(const Shape& shape, int expert_lanes);

// A rank's working memory for rows that visit its experts from other lanes. The bound holds for any routing
// and any number of own rows (layers/token_dispatcher.h).
int64_t dispatch_chunk_bytes(const Shape& shape, const Cut& cut, int64_t element_bytes);

// Multiply-adds that make all heads' keys and values from a token's narrow row; 0 without latent attention.
int64_t products_of_keys(const Shape& shape);

// Multiply-adds of a row with each cached narrow row, scores and values; 0 without latent attention.
int64_t products_with_narrow(const Shape& shape);

}  // namespace sluice::model
