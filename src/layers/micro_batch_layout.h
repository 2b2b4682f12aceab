// Where the tokens of one micro-batch lie in the rows that a lane's layers work on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/head_exchange.h"
#include "layers/ring_layout.h"
#include "layers/window_ring.h"
#include "ops/attention.h"

namespace sluice::layers {

// The rows that a lane attends with: the micro-batch's, or where heads are exchanged those of its run.
struct AttendedRows {
  ops::PackedSequences sequences;  // what attends without other lanes' keys: a sequence's pieces are one
  RingLayout ring;                 // whose blocks have the other keys
};

// The same through a window, where a ring has several lanes.
struct WindowedRows {
  ops::PackedSequences sequences;  // a sequence's pieces are one where nothing lies between them
  WindowLayout window;
};

// Pieces lie end to end without padding; at most tp - 1 inert rows follow, so that every TP rank holds as
// many rows. Immutable once made; shared by all layers of a stage.
struct MicroBatchLayout {
  at::Tensor position_T;  // int64 [rows] on the layers' device; inert rows 0
  int64_t tokens = 0;
  int64_t rows = 0;  // tokens rounded up to a multiple of tp
  HeadsLayout heads;
  AttendedRows attended;
  WindowedRows windowed;  // the same where attention has the model's window
  int64_t longest = 0;    // one past the largest position: rotary tables must reach so far
};

// Of whole sequences. REQUIRES: at least one piece, every length > 0.
MicroBatchLayout micro_batch_layout(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device);

// The micro-batches of a unit of several lanes, seen from one of them.
struct UnitSpans {
  int lane = 0;                               // this lane's place in the unit
  int head_lanes = 1;                         // neighbouring lanes that exchange heads; divides the lanes
  std::vector<int> members;                   // of the lanes' communicator, by lane of the unit
  std::vector<std::vector<PieceSpan>> lanes;  // the micro-batches, by lane of the unit
};

// Of that lane; likewise, of a model whose window is `window`, 0 without one. REQUIRES: causal cutting; where
// heads are exchanged no piece is a lane's own.
MicroBatchLayout unit_micro_batch_layout(const UnitSpans& unit, int tp, const at::Device& device,
                                         int64_t window = 0);

// `values`, one a token, followed by `filler` for the inert rows, on `device`: token ids and targets as
// int64, with -1 for rows that have none.
at::Tensor row_values(const std::vector<int64_t>& values, const MicroBatchLayout& layout,
                      const at::Device& device, int64_t filler = -1);

}  // namespace sluice::layers
