// Per-layer embeddings on one TP rank (model::LayerEmbedding), which the embedding operation makes for every
// layer's LayerInput.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/parameters.h"

namespace sluice::layers {

// State that a forward keeps for backward. It holds parameters, too: where lanes share the embedding's
// parameters (FSDP), backward does not gather them.
struct LayerEmbeddingState {
  at::Tensor x_SH;          // the embedding's rows
  at::Tensor projected_SC;  // input of the norm
  at::Tensor projection_CH, norm_P;
};

// `saved` null: keeps nothing.
at::Tensor layer_embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                                   const at::Tensor& id_T, const at::Tensor& x_SH,
                                   LayerEmbeddingState* saved);
// Adds to `gradients`, and adds to dx_SH the gradient that reaches the embedding's rows this way.
void layer_embedding_backward(const LayerContext& context, const at::Tensor& id_T,
                              const LayerEmbeddingState& saved, const at::Tensor& dinput_SC,
                              const EmbeddingParameters& gradients, at::Tensor& dx_SH);

}  // namespace sluice::layers
