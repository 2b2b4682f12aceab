// T: rows of the micro-batch, N: query heads, K: key/value heads, D: dimensions of a head, R: received rows,
// B: sent rows, J = 2K: a row has its keys' heads and then its values'.
#include "layers/window_ring.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace sluice::layers {
namespace {

using ops::AttentionBlock;

// A piece with its rows in its lane's micro-batch.
struct Placed {
  PieceSpan piece;
  base::Interval positions;
  int64_t row = 0;

  base::Interval rows_of(base::Interval some) const {
    return {row + some.begin - positions.begin, row + some.end - positions.begin};
  }
};

std::vector<Placed> located_pieces(const std::vector<PieceSpan>& pieces) {
  std::vector<Placed> placed;
  int64_t row = 0;
  for (const PieceSpan& piece : pieces) {
    placed.push_back({piece, {piece.begin, piece.begin + piece.length}, row});
    row += piece.length;
  }
  return placed;
}

// Of a piece's keys, those that some of the queries see.
base::Interval seen_of(const Placed& keys, const Placed& queries, int64_t window) {
  if (!queries.piece.sees(keys.piece)) return {};
  return base::intersect(keys.positions, {queries.positions.begin - window + 1, queries.positions.end});
}

// And of a lane's queries those that see some of these keys, as a block of rows.
AttentionBlock block_of(const Placed& queries, base::Interval keys, base::Interval key_rows, int64_t window) {
  const base::Interval seeing = base::intersect(queries.positions, {keys.begin, keys.end - 1 + window});
  return {queries.rows_of(seeing), key_rows, seeing.begin - keys.begin};
}

struct Sight {
  std::vector<base::Interval> rows;  // of the lane that is seen, in order
  std::vector<AttentionBlock> blocks;
  int64_t count = 0;
};

// What the pieces `seeing` see of another lane's pieces; rows that several of them see count once.
Sight sight(const std::vector<Placed>& seeing, const std::vector<Placed>& seen, int64_t window) {
  Sight sight;
  for (const Placed& keys : seen) {
    base::Interval all{keys.positions.end, keys.positions.begin};
    for (const Placed& queries : seeing) {
      const base::Interval some = seen_of(keys, queries, window);
      if (!some.empty()) all = {std::min(all.begin, some.begin), std::max(all.end, some.end)};
    }
    if (all.empty()) continue;
    for (const Placed& queries : seeing) {
      const base::Interval some = seen_of(keys, queries, window);
      if (some.empty()) continue;
      const int64_t first = sight.count + some.begin - all.begin;
      sight.blocks.push_back(block_of(queries, some, {first, first + some.size()}, window));
    }
    sight.rows.push_back(keys.rows_of(all));
    sight.count += all.size();
  }
  return sight;
}

// What pieces of one lane see of those of it that stand before them, of pairs that `counts` of.
template <typename Counts>
std::vector<AttentionBlock> blocks_between(const std::vector<Placed>& own, int64_t window,
                                           const Counts& counts) {
  std::vector<AttentionBlock> blocks;
  for (const Placed& queries : own) {
    for (const Placed& keys : own) {
      if (keys.positions.begin >= queries.positions.begin || !counts(queries, keys)) continue;
      const base::Interval some = seen_of(keys, queries, window);
      if (!some.empty()) blocks.push_back(block_of(queries, some, keys.rows_of(some), window));
    }
  }
  return blocks;
}

// Whether some lane sees anything of the one so many lanes before it.
bool some_see(const std::vector<std::vector<Placed>>& pieces, int behind, int64_t window) {
  for (size_t lane = 0; lane < pieces.size(); ++lane) {
    const size_t other = (lane + pieces.size() - static_cast<size_t>(behind)) % pieces.size();
    for (const Placed& queries : pieces[lane]) {
      for (const Placed& keys : pieces[other]) {
        if (!seen_of(keys, queries, window).empty()) return true;
      }
    }
  }
  return false;
}

at::Tensor rows_of(const at::Tensor& x, base::Interval rows) { return x.narrow(0, rows.begin, rows.size()); }

// Rows of one step on their way to and from this lane.
struct Exchanged {
  at::Tensor sent_BJD;
  at::Tensor received_RJD;
  std::optional<Passing> passing;

  void wait() {
    if (passing) passing->wait(received_RJD.device());
  }
};

class Travel {
 public:
  Travel(LaneChannel& channel, const WindowLayout& layout, const ops::AttentionInput& input)
      : channel_(channel), layout_(layout), input_(input), heads_(input.k_TKD.size(1)) {}

  // Begins to send the rows that others see, for those that this lane sees; nothing behind the last step.
  Exchanged begin(size_t step) const {
    if (step >= layout_.steps.size()) return {};
    const WindowLayout::Step& of = layout_.steps[step];
    Exchanged exchanged{buffer(rows_sent(of)), buffer(of.received_rows), {}};
    int64_t row = 0;
    for (const base::Interval rows : of.sent) {
      const at::Tensor to_BJD = exchanged.sent_BJD.narrow(0, row, rows.size());
      to_BJD.narrow(1, 0, heads_).copy_(rows_of(input_.k_TKD, rows));
      to_BJD.narrow(1, heads_, heads_).copy_(rows_of(input_.v_TKD, rows));
      row += rows.size();
    }
    exchanged.passing = pass(of.to, exchanged.sent_BJD, of.from, exchanged.received_RJD);
    return exchanged;
  }

  // Of received rows their gradients go back, and those of what was sent come.
  Exchanged begin_home(const WindowLayout::Step& of, const at::Tensor& own_RJD) const {
    Exchanged exchanged{own_RJD.to(input_.k_TKD.scalar_type()), buffer(rows_sent(of)), {}};
    exchanged.passing = pass(of.from, exchanged.sent_BJD, of.to, exchanged.received_RJD);
    return exchanged;
  }

  static int64_t rows_sent(const WindowLayout::Step& of) {
    int64_t rows = 0;
    for (const base::Interval some : of.sent) rows += some.size();
    return rows;
  }

 private:
  at::Tensor buffer(int64_t rows) const {
    return at::empty({rows, 2 * heads_, input_.k_TKD.size(2)}, input_.k_TKD.options());
  }
  Passing pass(int to, const at::Tensor& sent, int from, const at::Tensor& received) const {
    using Parcel = LaneChannel::Parcel;
    return channel_.exchange(
        std::array{Parcel{received, from, Parcel::Way::kFrom}, Parcel{sent, to, Parcel::Way::kTo}});
  }

  LaneChannel& channel_;
  const WindowLayout& layout_;
  const ops::AttentionInput& input_;
  int64_t heads_;
};

}  // namespace

std::vector<AttentionBlock> prefix_blocks_in_window(const std::vector<PieceSpan>& pieces, int64_t window) {
  if (std::ranges::none_of(pieces, &PieceSpan::branch)) return {};
  return blocks_between(located_pieces(pieces), window, [](const Placed& queries, const Placed& keys) {
    return queries.piece.branch && !keys.piece.branch;
  });
}

WindowLayout window_layout(const RingSpans& ring, int64_t window) {
  const auto lanes = static_cast<int>(ring.lanes.size());
  std::vector<std::vector<Placed>> pieces;  // by lane, those of shared sequences
  for (const std::vector<PieceSpan>& lane : ring.lanes) {
    pieces.push_back(located_pieces(lane));
    std::erase_if(pieces.back(), [](const Placed& placed) { return placed.piece.shared < 0; });
  }
  const auto pieces_of = [&](int lane) -> const std::vector<Placed>& {
    return pieces[static_cast<size_t>(lane)];
  };
  const std::vector<Placed>& own = pieces_of(ring.lane);
  WindowLayout layout{.lanes = lanes,
                      .own_blocks = blocks_between(located_pieces(ring.lanes[static_cast<size_t>(ring.lane)]),
                                                   window, [](const Placed&, const Placed&) { return true; }),
                      .steps = {}};
  for (int behind = 1; behind < lanes; ++behind) {
    if (!some_see(pieces, behind, window)) continue;
    Sight received = sight(own, pieces_of((ring.lane + lanes - behind) % lanes), window);
    Sight sent = sight(pieces_of((ring.lane + behind) % lanes), own, window);
    layout.steps.push_back({.to = ring.members[static_cast<size_t>((ring.lane + behind) % lanes)],
                            .from = ring.members[static_cast<size_t>((ring.lane + lanes - behind) % lanes)],
                            .sent = std::move(sent.rows),
                            .received_rows = received.count,
                            .blocks = std::move(received.blocks)});
  }
  return layout;
}

ops::AttentionResult window_attention(LaneChannel& channel, const WindowLayout& layout,
                                      const ops::PackedSequences& sequences,
                                      const ops::AttentionInput& input) {
  const Travel travel(channel, layout, input);
  Exchanged next = travel.begin(0);
  ops::AttentionResult seen = ops::attention(input, sequences);
  seen.out_TND = seen.out_TND.to(seen.lse_NT.scalar_type());
  ops::attend_blocks(input, layout.own_blocks, seen);
  for (size_t step = 0; step < layout.steps.size(); ++step) {
    Exchanged now = std::exchange(next, travel.begin(step + 1));
    now.wait();
    ops::attend_blocks(input.on(now.received_RJD), layout.steps[step].blocks, seen);
  }
  seen.out_TND = seen.out_TND.to(input.q_TND.scalar_type());
  return seen;
}

void window_attention_backward(LaneChannel& channel, const WindowLayout& layout,
                               const ops::PackedSequences& sequences, const at::Tensor& dout_TND,
                               const ops::AttentionInput& input, const ops::AttentionResult& saved,
                               const ops::AttentionGradient& gradient) {
  const int64_t heads = input.k_TKD.size(1);
  const at::TensorOptions wide = saved.lse_NT.options();
  const Travel travel(channel, layout, input);
  Exchanged next = travel.begin(0);
  ops::attention_backward(dout_TND, input, saved, sequences, gradient);
  const ops::AttentionGradient sum{gradient.dq_TND.to(wide.dtype()), gradient.dk_TKD.to(wide.dtype()),
                                   gradient.dv_TKD.to(wide.dtype())};
  ops::attend_blocks_backward(dout_TND, input, saved, layout.own_blocks, sum);
  Exchanged home;  // the gradients of the step before
  const auto add_home = [&](size_t step) {
    home.wait();
    int64_t row = 0;
    for (const base::Interval rows : layout.steps[step].sent) {
      const at::Tensor come = home.received_RJD.narrow(0, row, rows.size());
      rows_of(sum.dk_TKD, rows).add_(come.narrow(1, 0, heads));
      rows_of(sum.dv_TKD, rows).add_(come.narrow(1, heads, heads));
      row += rows.size();
    }
  };
  for (size_t step = 0; step < layout.steps.size(); ++step) {
    Exchanged now = std::exchange(next, travel.begin(step + 1));
    now.wait();
    const at::Tensor own_RJD = at::zeros({now.received_RJD.size(0), 2 * heads, input.k_TKD.size(2)}, wide);
    ops::attend_blocks_backward(dout_TND, input.on(now.received_RJD), saved, layout.steps[step].blocks,
                                {sum.dq_TND, own_RJD.narrow(1, 0, heads), own_RJD.narrow(1, heads, heads)});
    if (step > 0) add_home(step - 1);
    home = travel.begin_home(layout.steps[step], own_RJD);
  }
  if (!layout.steps.empty()) add_home(layout.steps.size() - 1);
  if (sum.dq_TND.is_same(gradient.dq_TND)) return;
  gradient.dq_TND.copy_(sum.dq_TND);
  gradient.dk_TKD.copy_(sum.dk_TKD);
  gradient.dv_TKD.copy_(sum.dv_TKD);
}

}  // namespace sluice::layers
