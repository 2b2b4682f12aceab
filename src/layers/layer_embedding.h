// Embeddings by layer on one TP rank (model::LayerEmbedding): what the embedding makes of its rows, for every
// layer's LayerInput.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/parameters.h"

namespace sluice::layers {

// What its backward needs of a forward. Parameters of the embedding are not at hand there where lanes share
// them.
struct LayerEmbeddingState {
  at::Tensor x_SH;          // the embedding's rows
  at::Tensor projected_SC;  // what the norm took
  at::Tensor projection_CH, norm_P;
};

// `saved` null: nothing is kept.
at::Tensor layer_embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                                   const at::Tensor& id_T, const at::Tensor& x_SH,
                                   LayerEmbeddingState* saved);
// Adds to gradients, and to dx_SH what comes to the embedding's rows this way.
void layer_embedding_backward(const LayerContext& context, const at::Tensor& id_T,
                              const LayerEmbeddingState& saved, const at::Tensor& dinput_SC,
                              const EmbeddingParameters& gradients, at::Tensor& dx_SH);

}  // namespace sluice::layers
