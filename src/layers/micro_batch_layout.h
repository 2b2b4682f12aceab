// Where the tokens of one micro-batch lie in the rows that a lane's layers work on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/ring_layout.h"
#include "ops/attention.h"

namespace sluice::layers {

// Pieces lie end to end without padding; at most tp - 1 inert rows follow, so that every TP rank holds as
// many rows. Immutable once made; shared by all layers of a stage.
struct MicroBatchLayout {
  ops::PackedSequences sequences;  // what attends without the other lanes: a sequence's pieces are one
  at::Tensor position_T;           // int64 [rows] on the layers' device; inert rows 0
  int64_t tokens = 0;
  int64_t rows = 0;  // tokens rounded up to a multiple of tp
  RingLayout ring;
  int64_t longest = 0;  // one past the largest position: rotary tables must reach so far
};

// Of whole sequences. REQUIRES: at least one piece, every length > 0.
MicroBatchLayout micro_batch_layout(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device);

// Of one lane of a ring; likewise.
MicroBatchLayout ring_micro_batch_layout(const RingSpans& ring, int tp, const at::Device& device);

// `values`, one a token, followed by `filler` for the inert rows, on `device`: token ids and targets as
// int64, with -1 for rows that have none.
at::Tensor row_values(const std::vector<int64_t>& values, const MicroBatchLayout& layout,
                      const at::Device& device, int64_t filler = -1);

}  // namespace sluice::layers
