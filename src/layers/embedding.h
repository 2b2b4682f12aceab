// The embedding on one TP rank: its vocabulary is cut over the ranks, its output is a row shard.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/parameters.h"

namespace sluice::layers {

// id_T: token ids of all rows of the micro-batch, -1 for inert rows (row_values); the same on all TP ranks.
// Returns x_SH; inert rows are zero.
at::Tensor embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                             const at::Tensor& id_T);

// Adds the gradient of this rank's vocabulary rows. The embedding has no input gradient.
void embedding_backward(const LayerContext& context, const at::Tensor& id_T, const at::Tensor& dx_SH,
                        const EmbeddingParameters& gradients);

}  // namespace sluice::layers
