// Figures of a whole model that planning asks of its shape.
#pragma once

#include "model/parameter.h"
#include "model/shape.h"

namespace sluice::model {

// The inner width of a gated MLP that has no more at work than any layer's, with experts or without: of those
// what visits hold, two rows of gate and up and one of SwiGLU's, for an MLP's four. Where lanes divide
// experts visits hold nothing.
int64_t least_ffn(const Shape& shape, int expert_lanes);

// What a rank has at work of rows that visit its experts from other lanes, whatever the routing and however
// many rows it has itself (layers/token_dispatcher.h).
int64_t dispatch_chunk_bytes(const Shape& shape, const Cut& cut, int64_t element_bytes);

// Multiply-adds a token that make keys and values of all heads of its narrow row; 0 without latent attention.
int64_t products_of_keys(const Shape& shape);

// Multiply-adds of a row with each token whose narrow row stayed, scores and values each; likewise.
int64_t products_with_narrow(const Shape& shape);

}  // namespace sluice::model
