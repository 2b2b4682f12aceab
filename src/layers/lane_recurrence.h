// What a recurrence over a sequence that lies on several lanes passes between them: of its convolution the
// few rows in front of each piece, of its states one a piece (ZeCO's All-Scan, Chou et al., 2025, for any
// recurrence of ops/recurrence.h): every lane first finds what its pieces do to a state, all at once; then
// states go from piece to piece, in blocks of columns, each a product away from the next.
//
// Row and width names: T rows, P pieces, H heads [K, D]; X rows of margins, C channels.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "layers/lane_channel.h"
#include "layers/row_transfers.h"
#include "ops/recurrence.h"
#include "ops/short_convolution.h"

namespace sluice::layers {

// Rows that stand in the margins of other pieces.
struct HaloLayout {
  struct Step {
    int to = -1;  // members of the lanes' communicator
    int from = -1;
    at::Tensor sent_rows;       // int64: of the micro-batch
    int64_t received_rows = 0;  // and of these, which stand in which rows of margins
    at::Tensor used_rows, halos;
  };
  std::vector<Step> steps;     // all lanes have the same
  at::Tensor own_rows, halos;  // likewise, of the lane's own pieces; undefined: none
  bool any() const { return own_rows.defined() || !steps.empty(); }
};

// A piece that a state comes to or goes on from.
struct ScannedPiece {
  struct Other {
    int member = -1;  // of the lanes' communicator; -1: this lane
    int piece = -1;   // then of its own
    bool any() const { return member >= 0 || piece >= 0; }
  };
  int piece = 0;
  int sequence = 0;       // which of those that the lanes share
  int place = 0;          // among its pieces on all lanes
  int places_behind = 0;  // how many of them come later
  Other before, behind;
};

// What recurrent layers want to know of the rows that a lane attends with.
struct RecurrentRows {
  ops::RecurrenceChunks chunks;
  ops::HaloRows rows;
  HaloLayout halos;
  std::vector<ScannedPiece> scanned;
};

// `lengths` and `rows`: of those rows, inert ones included. `ring`: the lanes whose pieces they are, with
// others that share their sequences. `width`: of the convolution.
RecurrentRows recurrent_rows(const std::vector<int64_t>& lengths, int64_t rows, int64_t width,
                             const RingSpans& ring, const at::Device& device);

// What stands in the margins of x [T, C], [X, C]; undefined: zeros. All lanes of the ring call this and the
// following at once.
at::Tensor halos_of(LaneChannel* channel, const RecurrentRows& rows, const at::Tensor& x_TC);
// Adds the gradients of margins to those of the rows that stood there.
void halos_backward(LaneChannel* channel, const RecurrentRows& rows, const at::Tensor& dmargin_XC,
                    const at::Tensor& dx_TC);

// The states that pieces begin with, [P, H, K, D]; undefined where no sequence goes on.
at::Tensor begin_states(LaneChannel* channel, const RecurrentRows& rows, const ops::Recurrence& recurrence);
// The gradients of those that they end with.
at::Tensor end_gradients(LaneChannel* channel, const RecurrentRows& rows, const ops::Recurrence& recurrence,
                         const at::Tensor& dout_THD);

}  // namespace sluice::layers
