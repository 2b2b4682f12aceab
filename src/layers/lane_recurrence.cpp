#include "layers/lane_recurrence.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "model/head_parts.h"
#include "ops/device.h"

namespace sluice::layers {
namespace {

using Parcel = LaneChannel::Parcel;

struct MarginRow {
  int64_t row = 0;     // the row that is copied
  int64_t margin = 0;  // the halo row that it becomes
};

// `begins`: the first rows of pieces, ascending. Halo rows are those that a window as wide as the convolution
// shows a piece: always the rows right in front of it.
void add_margins(const std::vector<ops::AttentionBlock>& blocks, const std::vector<int64_t>& begins,
                 int64_t margin, std::vector<MarginRow>& to) {
  for (const ops::AttentionBlock& block : blocks) {
    const int64_t piece = std::ranges::lower_bound(begins, block.queries.begin) - begins.begin();
    for (int64_t i = 0; i < block.keys.size(); ++i)
      to.push_back({block.keys.begin + i, (piece + 1) * margin - block.ahead + i});
  }
}

std::pair<at::Tensor, at::Tensor> indices_of(const std::vector<MarginRow>& rows, const at::Device& device) {
  std::vector<int64_t> from, to;
  for (const auto& [row, margin] : rows) {
    from.push_back(row);
    to.push_back(margin);
  }
  return {ops::to_device(from, device), ops::to_device(to, device)};
}

HaloLayout margin_layout(const RingSpans& ring, int64_t width, const at::Device& device) {
  HaloLayout layout;
  if (width == 1) return layout;
  std::vector<int64_t> begins;
  int64_t row = 0;
  const std::vector<PieceSpan>& pieces = ring.lanes[static_cast<size_t>(ring.lane)];
  for (const PieceSpan& piece : pieces) {
    begins.push_back(row);
    row += piece.length;
  }
  std::vector<MarginRow> own;
  add_margins(blocks_in_window(pieces, width), begins, width - 1, own);
  if (!own.empty()) std::tie(layout.own_rows, layout.halos) = indices_of(own, device);
  const RowTransfers transfers = window_row_transfers(ring, width);
  for (size_t step = 1; step < transfers.steps.size(); ++step) {
    HaloLayout::Step& added = layout.steps.emplace_back();
    for (const RowTransfers::Transfer& hop : transfers.steps[step - 1].hops) {
      if (!hop.leaves) {
        added.from = hop.member;
        added.received_rows = hop.count;
        continue;
      }
      added.to = hop.member;
      std::vector<int64_t> sent;
      for (const base::Interval& rows : hop.own_rows) {
        for (int64_t own_row = rows.begin; own_row < rows.end; ++own_row) sent.push_back(own_row);
      }
      added.sent_rows = ops::to_device(sent, device);
    }
    std::vector<MarginRow> received;
    add_margins(transfers.steps[step].remote_attention->blocks, begins, width - 1, received);
    std::tie(added.used_rows, added.halos) = indices_of(received, device);
  }
  return layout;
}

std::vector<ScannedPiece> scanned_pieces(const RingSpans& ring) {
  struct Placed {
    int sequence;
    int64_t begin;
    int lane;
    int piece;
  };
  std::vector<Placed> all;
  for (size_t lane = 0; lane < ring.lanes.size(); ++lane) {
    const std::vector<PieceSpan>& pieces = ring.lanes[lane];
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      if (pieces[piece].shared < 0) continue;
      all.push_back(
          {pieces[piece].shared, pieces[piece].begin, static_cast<int>(lane), static_cast<int>(piece)});
    }
  }
  std::ranges::sort(all, {}, [](const Placed& p) { return std::pair(p.sequence, p.begin); });
  const auto seen = [&](size_t i) {
    const bool own = all[i].lane == ring.lane;
    return own ? ScannedPiece::Other{-1, all[i].piece}
               : ScannedPiece::Other{ring.members[static_cast<size_t>(all[i].lane)], -1};
  };
  std::vector<ScannedPiece> pieces;
  for (size_t first = 0, end = 0; first < all.size(); first = end) {
    while (end < all.size() && all[end].sequence == all[first].sequence) ++end;
    for (size_t i = first; i < end; ++i) {
      if (all[i].lane != ring.lane || end - first == 1) continue;
      ScannedPiece& piece = pieces.emplace_back();
      piece.piece = all[i].piece;
      piece.sequence = all[i].sequence;
      piece.place = static_cast<int>(i - first);
      piece.places_behind = static_cast<int>(end - 1 - i);
      if (i > first) piece.before = seen(i - 1);
      if (i + 1 < end) piece.behind = seen(i + 1);
    }
  }
  return pieces;
}

// Passes states along `pieces`. step(state, piece, columns) turns the state that came to a piece into the one
// that leaves it. The state is undefined for a sequence's first piece.
//
// A transport may finish a lane's transfers only in the order in which the lane started them. So all lanes
// start their common messages in one order. Block b leaves a sequence's piece at place p at time p + b; ties
// go to the earlier place, then to the earlier sequence. A receive starts one time before its block is
// needed, while the previous block is computed and sent on.
template <typename Step>
class Scan {
 public:
  Scan(LaneChannel* channel, const std::vector<ScannedPiece>& pieces, const at::Tensor& like_PHKD, Step step)
      : channel_(channel),
        pieces_(pieces),
        blocks_(std::min(model::kStateBlocks, like_PHKD.size(3))),
        came_PHKD_(at::zeros(like_PHKD.sizes(), like_PHKD.options())),
        step_(step),
        coming_(pieces.size() * static_cast<size_t>(blocks_)),
        left_(static_cast<size_t>(like_PHKD.size(0) * blocks_)) {}

  // Returns the states that came to the pieces, [P, H, K, D].
  at::Tensor operator()() {
    for (const Action& action : actions()) {
      if (action.receives) {
        ask_for(action.piece, action.block);
      } else {
        pass_on(action.piece, action.block);
      }
    }
    for (size_t piece = 0; piece < pieces_.size(); ++piece) {
      for (int64_t block = 0; block < blocks_ && !pieces_[piece].behind.any(); ++block) take(piece, block);
    }
    for (auto& [passing, state] : leaving_) passing.wait(state.device());
    return came_PHKD_;
  }

 private:
  struct Action {
    int64_t time, place, sequence;  // the message's
    bool receives;
    size_t piece;  // index in pieces_
    int64_t block;
  };

  std::vector<Action> actions() const {
    std::vector<Action> all;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const ScannedPiece& piece = pieces_[i];
      for (int64_t block = 0; block < blocks_; ++block) {
        if (piece.before.member >= 0)
          all.push_back({piece.place - 1 + block, piece.place - 1, piece.sequence, true, i, block});
        if (piece.behind.any())
          all.push_back({piece.place + block, piece.place, piece.sequence, false, i, block});
      }
    }
    std::ranges::sort(all, {}, [](const Action& a) { return std::tuple(a.time, a.place, a.sequence); });
    return all;
  }

  std::optional<std::pair<Passing, at::Tensor>>& coming(size_t piece, int64_t block) {
    return coming_[piece * static_cast<size_t>(blocks_) + static_cast<size_t>(block)];
  }
  at::Tensor& left(int piece, int64_t block) { return left_[static_cast<size_t>(piece * blocks_ + block)]; }
  base::Interval columns(int64_t block) const { return base::even_part(came_PHKD_.size(3), blocks_, block); }

  void ask_for(size_t piece, int64_t block) {
    const at::Tensor state =
        at::empty({came_PHKD_.size(1), came_PHKD_.size(2), columns(block).size()}, came_PHKD_.options());
    const Parcel parcel{state, pieces_[piece].before.member, Parcel::Way::kFrom};
    coming(piece, block).emplace(channel_->exchange({&parcel, 1}), state);
  }

  // Undefined for a sequence's first piece, to which nothing comes.
  at::Tensor take(size_t index, int64_t block) {
    const ScannedPiece& piece = pieces_[index];
    at::Tensor state;
    if (piece.before.member >= 0) {
      auto& [passing, received] = *coming(index, block);
      passing.wait(received.device());
      state = received;
    } else if (piece.before.piece >= 0) {
      state = left(piece.before.piece, block);
    }
    const base::Interval own = columns(block);
    if (state.defined()) came_PHKD_[piece.piece].narrow(2, own.begin, own.size()).copy_(state);
    return state;
  }

  void pass_on(size_t index, int64_t block) {
    const ScannedPiece& piece = pieces_[index];
    at::Tensor leaves = step_(take(index, block), piece.piece, columns(block)).contiguous();
    if (piece.behind.member < 0) {
      left(piece.piece, block) = std::move(leaves);
      return;
    }
    const Parcel parcel{leaves, piece.behind.member, Parcel::Way::kTo};
    leaving_.emplace_back(channel_->exchange({&parcel, 1}), leaves);
  }

  LaneChannel* channel_;
  const std::vector<ScannedPiece>& pieces_;
  int64_t blocks_;
  at::Tensor came_PHKD_;
  Step step_;
  std::vector<std::optional<std::pair<Passing, at::Tensor>>> coming_;  // by piece and block
  std::vector<at::Tensor> left_;                                       // by the lane's piece and block
  std::vector<std::pair<Passing, at::Tensor>> leaving_;
};

}  // namespace

RecurrentRows recurrent_rows(const std::vector<int64_t>& lengths, int64_t rows, int64_t width,
                             const RingSpans& ring, const at::Device& device) {
  return {ops::recurrence_chunks(lengths, rows, device), ops::halo_rows(lengths, rows, width, device),
          margin_layout(ring, width, device), scanned_pieces(ring)};
}

at::Tensor halos_of(LaneChannel* channel, const RecurrentRows& rows, const at::Tensor& x_TC) {
  const HaloLayout& layout = rows.halos;
  if (!layout.any()) return {};
  at::Tensor margin_XC = at::zeros({rows.rows.halo_X.size(0), x_TC.size(1)}, x_TC.options());
  std::vector<at::Tensor> received;
  std::vector<Parcel> parcels;
  for (const HaloLayout::Step& step : layout.steps) {
    received.push_back(at::empty({step.received_rows, x_TC.size(1)}, x_TC.options()));
    parcels.push_back({received.back(), step.from, Parcel::Way::kFrom});
    parcels.push_back({x_TC.index_select(0, step.sent_rows), step.to, Parcel::Way::kTo});
  }
  if (!parcels.empty()) channel->exchange(parcels).wait(x_TC.device());
  if (layout.own_rows.defined())
    margin_XC.index_copy_(0, layout.halos, x_TC.index_select(0, layout.own_rows));
  for (size_t i = 0; i < received.size(); ++i) {
    const HaloLayout::Step& step = layout.steps[i];
    margin_XC.index_copy_(0, step.halos, received[i].index_select(0, step.used_rows));
  }
  return margin_XC;
}

void halos_backward(LaneChannel* channel, const RecurrentRows& rows, const at::Tensor& dmargin_XC,
                    const at::Tensor& dx_TC) {
  const HaloLayout& layout = rows.halos;
  if (!layout.any()) return;
  at::Tensor sum_TC = dx_TC;
  std::vector<at::Tensor> received;
  std::vector<Parcel> parcels;
  for (const HaloLayout::Step& step : layout.steps) {
    at::Tensor sent = at::zeros({step.received_rows, dx_TC.size(1)}, dx_TC.options());
    sent.index_add_(0, step.used_rows, dmargin_XC.index_select(0, step.halos));
    received.push_back(at::empty({step.sent_rows.size(0), dx_TC.size(1)}, dx_TC.options()));
    parcels.push_back({received.back(), step.to, Parcel::Way::kFrom});
    parcels.push_back({sent, step.from, Parcel::Way::kTo});
  }
  if (!parcels.empty()) channel->exchange(parcels).wait(dx_TC.device());
  if (layout.own_rows.defined())
    sum_TC.index_add_(0, layout.own_rows, dmargin_XC.index_select(0, layout.halos));
  for (size_t i = 0; i < received.size(); ++i) sum_TC.index_add_(0, layout.steps[i].sent_rows, received[i]);
}

at::Tensor begin_states(LaneChannel* channel, const RecurrentRows& rows, const ops::Recurrence& recurrence) {
  if (rows.scanned.empty()) return {};
  const ops::RecurrencePassage passage = recurrence.passage();
  const auto step = [&](const at::Tensor& begin, int64_t piece, base::Interval columns) {
    return passage.of(begin, piece, columns);
  };
  return Scan(channel, rows.scanned, passage.added_PHKD, step)();
}

at::Tensor end_gradients(LaneChannel* channel, const RecurrentRows& rows, const ops::Recurrence& recurrence,
                         const at::Tensor& dout_THD) {
  if (rows.scanned.empty()) return {};
  ops::RecurrencePassage passage = recurrence.passage();
  passage.added_PHKD = recurrence.begin_gradient(dout_THD);
  std::vector<ScannedPiece> back = rows.scanned;
  for (ScannedPiece& piece : back) {
    std::swap(piece.before, piece.behind);
    std::swap(piece.place, piece.places_behind);
  }
  const auto step = [&](const at::Tensor& dend, int64_t piece, base::Interval columns) {
    return passage.back_of(dend, piece, columns);
  };
  return Scan(channel, back, passage.added_PHKD, step)();
}

}  // namespace sluice::layers
