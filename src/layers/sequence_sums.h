// Sums by sequence, including sequences with pieces on several lanes.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/row_layout.h"

namespace sluice::layers {

// Adds the other lanes' sums of shared sequences to `sums_QX`, whose rows are sequences numbered as in
// SequenceRows. Collective over all lanes that share sequences. REQUIRES: `lanes` is not null if there are
// shared sequences.
void add_other_lanes(LaneChannel* lanes, const SequenceRows& sequences, const at::Tensor& sums_QX);

// Means of sequences' rows, in float or wider: [Q + 1, H], the last for inert rows. All TP ranks and lanes
// that have rows of a sequence get its mean. `y_SH`: this TP rank's shard.
at::Tensor sequence_means(const LayerContext& context, const SequenceRows& sequences, const at::Tensor& y_SH);

// The adjoint: the gradient of y_SH from those of some sequences' means. `sequence_M`, `dmean_MH`: these
// sequences and gradients, on the TP ranks and lanes that computed them.
at::Tensor sequence_means_backward(const LayerContext& context, const SequenceRows& sequences,
                                   const at::Tensor& sequence_M, const at::Tensor& dmean_MH, int64_t rows);

// The sequence of each row of this TP rank's shard, which has `rows` rows.
at::Tensor sequences_of_shard(const LayerContext& context, const SequenceRows& sequences, int64_t rows);

}  // namespace sluice::layers
