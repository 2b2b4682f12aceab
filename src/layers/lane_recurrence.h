// Communication of recurrent layers whose sequences lie on several lanes. The convolution passes on the few
// rows before each piece (halos). The recurrence passes on one state per piece (ZeCO's All-Scan, Chou et al.,
// 2025, for any recurrence of ops/recurrence.h). All lanes first compute at once what their pieces do to a
// state; then states go from piece to piece in blocks of columns, one product apart.
//
// Row and width names: T rows, P pieces, H heads [K, D]; X halo rows, C channels.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "layers/lane_channel.h"
#include "layers/row_transfers.h"
#include "ops/recurrence.h"
#include "ops/short_convolution.h"

namespace sluice::layers {

// Transfers of rows that are halos of other pieces.
struct HaloLayout {
  struct Step {
    int to = -1;  // members of the lanes' communicator
    int from = -1;
    at::Tensor sent_rows;       // int64: rows of the micro-batch
    int64_t received_rows = 0;  // rows used_rows of these become halo rows `halos`
    at::Tensor used_rows, halos;
  };
  std::vector<Step> steps;     // the same number on all lanes
  at::Tensor own_rows, halos;  // likewise between the lane's own pieces; undefined: none
  bool any() const { return own_rows.defined() || !steps.empty(); }
};

// A piece that receives a state or passes one on.
struct ScannedPiece {
  struct Other {
    int member = -1;  // member of the lanes' communicator; -1: this lane
    int piece = -1;   // if on this lane: which of its pieces
    bool any() const { return member >= 0 || piece >= 0; }
  };
  int piece = 0;
  int sequence = 0;       // index among the sequences that the lanes share
  int place = 0;          // index among the sequence's pieces on all lanes
  int places_behind = 0;  // number of the sequence's later pieces
  Other before, behind;
};

// Layout of the rows that a lane attends with, as recurrent layers need it.
struct RecurrentRows {
  ops::RecurrenceChunks chunks;
  ops::HaloRows rows;
  HaloLayout halos;
  std::vector<ScannedPiece> scanned;
};

// `lengths`, `rows`: pieces and number of those rows, inert ones included. `ring`: the lanes that hold these
// pieces, and others that share their sequences. `width`: the convolution's width.
RecurrentRows recurrent_rows(const std::vector<int64_t>& lengths, int64_t rows, int64_t width,
                             const RingSpans& ring, const at::Device& device);

// The halo rows [X, C] of x [T, C]; undefined: all zero. This function and those below are collective over
// the ring's lanes.
at::Tensor halos_of(LaneChannel* channel, const RecurrentRows& rows, const at::Tensor& x_TC);
// Adds the gradients of halo rows to those of the rows that they copy.
void halos_backward(LaneChannel* channel, const RecurrentRows& rows, const at::Tensor& dmargin_XC,
                    const at::Tensor& dx_TC);

// The states that pieces begin with, [P, H, K, D]; undefined if no piece continues a sequence.
at::Tensor begin_states(LaneChannel* channel, const RecurrentRows& rows, const ops::Recurrence& recurrence);
// The gradients of the states that pieces end with.
at::Tensor end_gradients(LaneChannel* channel, const RecurrentRows& rows, const ops::Recurrence& recurrence,
                         const at::Tensor& dout_THD);

}  // namespace sluice::layers
