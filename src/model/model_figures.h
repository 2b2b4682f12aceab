// Figures of a whole model that planning derives from its model.
#pragma once

#include "model/model.h"
#include "model/parameter.h"

namespace sluice::model {

// The width of a gated MLP that needs at most the working memory of any layer, with experts or without. For
// each element of width, an expert's visits hold two rows of gate and up and one of SwiGLU; an MLP holds
// four. If lanes divide experts, visits hold nothing.
int64_t least_ffn(const Model& model, int expert_lanes);

// A rank's working memory for rows that visit its experts from other lanes. The bound holds for any routing
// and any number of own rows (layers/token_dispatcher.h).
int64_t dispatch_chunk_bytes(const Model& model, const Cut& cut, int64_t element_bytes);

// Bytes of a token in the backward of a layer whose experts are computed all at once, as on GPUs
// (layers/grouped_experts.h); 0 without experts. One TP rank.
int64_t grouped_experts_bytes(const Model& model, int64_t element_bytes);

// Elements of a recurrent layer's states on one TP rank.
int64_t state_elements(const Model& model, int tp);
// Elements of a token's row that the lane with most heads, of `lanes`, gets from another lane and gives back
// in a recurrent layer.
int64_t exchanged_state_elements(const Model& model, int tp, int lanes);
// Elements of a token's keys and values that one TP rank passes on in a ring.
int64_t ring_elements(const Model& model, int tp);

// Multiply-adds that make all heads' keys and values from a token's narrow row; 0 without latent attention.
int64_t products_of_keys(const Model& model);

// Multiply-adds of a row with each cached narrow row, scores and values; 0 without latent attention.
int64_t products_with_narrow(const Model& model);

}  // namespace sluice::model
