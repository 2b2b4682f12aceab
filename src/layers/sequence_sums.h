// Sums by sequence, of sequences that several lanes have pieces of, too.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/row_layout.h"

namespace sluice::layers {

// Adds what the other lanes have of the sequences that all have pieces of. `sums_QX`: by sequence, as
// SequenceRows numbers them. All lanes that share sequences call it at once. REQUIRES: a channel where they
// do.
void add_other_lanes(LaneChannel* lanes, const SequenceRows& sequences, const at::Tensor& sums_QX);

// The mean of each sequence's rows, on every TP rank and lane that has some of them, in float or wider:
// [Q + 1, H], inert rows' behind. `y_SH`: this TP rank's shard.
at::Tensor sequence_means(const LayerContext& context, const SequenceRows& sequences, const at::Tensor& y_SH);

// The adjoint: the gradient of y_SH, from those of some sequences' means. `dmean_MH`: of these, on the TP
// ranks and lanes that found them.
at::Tensor sequence_means_backward(const LayerContext& context, const SequenceRows& sequences,
                                   const at::Tensor& sequence_M, const at::Tensor& dmean_MH, int64_t rows);

// The sequences of this TP rank's shard of so many rows.
at::Tensor sequences_of_shard(const LayerContext& context, const SequenceRows& sequences, int64_t rows);

}  // namespace sluice::layers
