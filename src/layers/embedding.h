// The embedding on one TP rank: its vocabulary is cut over the ranks, its output is a row shard.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/parameters.h"

namespace sluice::layers {

// id_T: token ids of all rows of the micro-batch, -1 for inert rows (row_values); the same on all TP ranks.
// `position_T`: positions of all rows, for models with learned position embeddings. Returns x_SH. Inert rows
// are zero, except for position and kind embeddings, which every row gets.
at::Tensor embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                             const at::Tensor& id_T, const at::Tensor& position_T);

// Adds the gradients of this rank's vocabulary rows, and those of position and kind embeddings from its own
// rows. The embedding has no input gradient.
void embedding_backward(const LayerContext& context, const at::Tensor& id_T, const at::Tensor& position_T,
                        const at::Tensor& dx_SH, const EmbeddingParameters& gradients);

}  // namespace sluice::layers
