// The embedding on one TP rank: its vocabulary is cut over the ranks, its output is a row shard.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/parameters.h"

namespace sluice::layers {

// id_T: token ids of all rows of the micro-batch, -1 for inert rows (row_values); the same on all TP ranks.
// Returns x_SH. `position_T`: of all rows, where positions have rows of their own, as all but inert rows then
// have; these are zero but for them.
at::Tensor embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                             const at::Tensor& id_T, const at::Tensor& position_T);

// Adds the gradients of this rank's vocabulary rows, and of positions' and kinds' by its own rows. The
// embedding has no input gradient.
void embedding_backward(const LayerContext& context, const at::Tensor& id_T, const at::Tensor& position_T,
                        const at::Tensor& dx_SH, const EmbeddingParameters& gradients);

}  // namespace sluice::layers
