#include "layers/row_transfers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::layers {
namespace {

using ops::AttentionBlock;
using strategy::RowSchedule;
using Rows = RowTransfers::Rows;

// A piece and its rows on its lane.
struct PlacedPiece {
  PieceSpan piece;
  base::Interval rows;

  base::Interval positions() const { return {piece.begin, piece.begin + piece.length}; }
  base::Interval rows_at(base::Interval some) const {
    return {rows.begin + some.begin - piece.begin, rows.begin + some.end - piece.begin};
  }
};
using PlacedPieces = std::vector<PlacedPiece>;

// All pieces of a micro-batch.
PlacedPieces placed_pieces(const std::vector<PieceSpan>& pieces) {
  PlacedPieces placed;
  int64_t row = 0;
  for (const PieceSpan& piece : pieces) {
    placed.push_back({piece, {row, row + piece.length}});
    row += piece.length;
  }
  return placed;
}

// The shared pieces and their rows in their micro-batch.
PlacedPieces shared_pieces(const std::vector<PieceSpan>& pieces) {
  PlacedPieces placed = placed_pieces(pieces);
  std::erase_if(placed, [](const PlacedPiece& piece) { return piece.piece.shared < 0; });
  return placed;
}

// The same pieces with rows numbered end to end.
PlacedPieces block_of(PlacedPieces shared) {
  int64_t row = 0;
  for (PlacedPiece& piece : shared) {
    piece.rows = {row, row + piece.piece.length};
    row += piece.piece.length;
  }
  return shared;
}

std::vector<base::Interval> joined_rows(const PlacedPieces& pieces) {
  std::vector<base::Interval> rows;
  for (const PlacedPiece& piece : pieces) {
    if (!rows.empty() && rows.back().end == piece.rows.begin) {
      rows.back().end = piece.rows.end;
    } else {
      rows.push_back(piece.rows);
    }
  }
  return rows;
}

// The keys, end to end, that the piece sees in its own sequence or in its prefix.
enum class Seen : uint8_t { kOwn, kPrefix };
base::Interval seen_by(const PieceSpan& queries, const PlacedPieces& all, Seen what, AttentionMask mask) {
  base::Interval keys;
  for (const auto& [piece, rows] : all) {
    const Seen of = piece.branch == queries.branch ? Seen::kOwn : Seen::kPrefix;
    const bool hidden = mask == AttentionMask::kCausal && piece.begin + piece.length > queries.begin;
    if (of != what || !queries.sees(piece) || hidden) continue;
    SLUICE_ASSERT(keys.empty() || keys.end == rows.begin, "pieces of a sequence lie apart in what travels");
    keys = {keys.empty() ? rows.begin : keys.begin, rows.end};
  }
  return keys;
}

// Consecutive queries that see the same keys become one block.
void add_blocks(const PlacedPieces& queries, const PlacedPieces& keys, Seen what, AttentionMask mask,
                std::vector<AttentionBlock>& blocks) {
  const size_t first = blocks.size();
  for (const auto& [piece, rows] : queries) {
    const base::Interval seen = seen_by(piece, keys, what, mask);
    if (seen.empty()) continue;
    if (blocks.size() > first && blocks.back().keys == seen && blocks.back().queries.end == rows.begin) {
      blocks.back().queries.end = rows.end;
      continue;
    }
    SLUICE_ASSERT(blocks.size() == first || blocks.back().keys.end <= seen.begin,
                  "pieces of one lane see different parts of what travels");
    blocks.push_back({rows, seen});
  }
}

// Compiles a schedule to rows of one lane; both ends of a transfer get the same rows.
class Compiler {
 public:
  Compiler(const RingSpans& ring, const RowSchedule& schedule) : ring_(ring), schedule_(schedule) {
    for (const std::vector<PieceSpan>& pieces : ring.lanes) {
      shared_.push_back(shared_pieces(pieces));
      blocks_.push_back(block_of(shared_.back()));
    }
  }

  RowTransfers operator()() const {
    RowTransfers transfers{.lanes = schedule_.lanes, .lane = ring_.lane};
    transfers.steps.resize(static_cast<size_t>(schedule_.steps));
    const auto step = [&](int index) -> RowTransfers::Step& {
      return transfers.steps[static_cast<size_t>(index)];
    };
    std::map<std::pair<Rows, int>, int> last;  // others' rows, and their last step
    const auto needed = [&](Rows rows, int of, int in) {
      if (of != ring_.lane) last[{rows, of}] = std::max(last[{rows, of}], in);
    };
    for (const RowSchedule::Task& task : schedule_.tasks) {
      if (task.at != ring_.lane) continue;
      step(task.step).remote_attention = meeting(task);
      needed(Rows::kKeys, task.keys, task.step);
      needed(Rows::kQueries, task.queries, task.step);
    }
    for (const RowSchedule::Hop& hop : schedule_.hops) {
      add(hop, step(hop.issued).hops);
      if (hop.from == ring_.lane) needed(hop.rows, hop.of, hop.issued);
    }
    for (const RowSchedule::Return& of : schedule_.returns) add(of, step(of.issued).returns);
    for (const auto& [rows, in] : last) step(in).done.push_back(rows);
    return transfers;
  }

 private:
  const PlacedPieces& shared(int lane) const { return shared_[static_cast<size_t>(lane)]; }
  const PlacedPieces& block(int lane) const { return blocks_[static_cast<size_t>(lane)]; }
  int64_t count(int lane) const { return block(lane).empty() ? 0 : block(lane).back().rows.end; }

  RowTransfers::RemoteAttention meeting(const RowSchedule::Task& task) const {
    const bool others_keys = task.at == task.queries;
    const int other = others_keys ? task.keys : task.queries;
    RowTransfers::RemoteAttention meeting{
        others_keys ? Rows::kKeys : Rows::kQueries, other, count(other), {}};
    for (const Seen what : {Seen::kOwn, Seen::kPrefix}) {
      if (others_keys) {
        add_blocks(shared(ring_.lane), block(other), what, ring_.mask, meeting.blocks);
      } else {
        add_blocks(block(other), shared(ring_.lane), what, ring_.mask, meeting.blocks);
      }
    }
    return meeting;
  }

  void add(const RowSchedule::Hop& hop, std::vector<RowTransfers::Transfer>& to) const {
    if (hop.from != ring_.lane && hop.to != ring_.lane) return;
    const bool leaves = hop.from == ring_.lane;
    RowTransfers::Transfer& added = to.emplace_back(
        RowTransfers::Transfer{.leaves = leaves,
                               .rows = hop.rows,
                               .of = hop.of,
                               .member = ring_.members[static_cast<size_t>(leaves ? hop.to : hop.from)],
                               .due = hop.due,
                               .slow = hop.due - hop.issued > 1,
                               .count = count(hop.of),
                               .own = hop.of == ring_.lane});
    if (added.own) added.own_rows = joined_rows(shared(ring_.lane));
  }

  const RingSpans& ring_;
  const RowSchedule& schedule_;
  std::vector<PlacedPieces> shared_, blocks_;  // by lane
};

// A token's field of view.
struct Visible {
  int64_t width = 0;  // tokens up to and including itself
  AttentionMask mask = AttentionMask::kCausal;

  int64_t behind() const { return mask == AttentionMask::kFull ? width - 1 : 0; }
};

// The keys of a piece that some of the queries see.
base::Interval seen_in_window(const PlacedPiece& keys, const PlacedPiece& queries, const Visible& window) {
  if (!queries.piece.sees(keys.piece)) return {};
  const base::Interval positions = queries.positions();
  return base::intersect(keys.positions(),
                         {positions.begin - window.width + 1, positions.end + window.behind()});
}

// The block of these keys with the queries that see some of them.
AttentionBlock block_in_window(const PlacedPiece& queries, base::Interval keys, base::Interval key_rows,
                               const Visible& window) {
  const base::Interval seeing =
      base::intersect(queries.positions(), {keys.begin - window.behind(), keys.end - 1 + window.width});
  return {queries.rows_at(seeing), key_rows, seeing.begin - keys.begin};
}

struct Sight {
  std::vector<base::Interval> rows;  // rows of the lane that is seen, in order
  std::vector<AttentionBlock> blocks;
  int64_t count = 0;
};

// Rows of another lane's pieces that the pieces `seeing` see; rows that several of them see count once. A
// piece before the keys sees their beginning (full attention), one behind them their end.
Sight sight(const PlacedPieces& seeing, const PlacedPieces& seen, const Visible& window) {
  Sight sight;
  for (const PlacedPiece& keys : seen) {
    base::IntervalSet all;
    for (const PlacedPiece& queries : seeing) {
      const base::Interval some = seen_in_window(keys, queries, window);
      if (!some.empty()) all.add(some);
    }
    for (const base::Interval run : all.intervals()) {
      for (const PlacedPiece& queries : seeing) {
        const base::Interval some = base::intersect(run, seen_in_window(keys, queries, window));
        if (some.empty()) continue;
        const int64_t first = sight.count + some.begin - run.begin;
        sight.blocks.push_back(block_in_window(queries, some, {first, first + some.size()}, window));
      }
      sight.rows.push_back(keys.rows_at(run));
      sight.count += run.size();
    }
  }
  return sight;
}

// Blocks between pieces of one lane, for pairs (queries, keys) that `counts` accepts.
template <typename Counts>
std::vector<AttentionBlock> blocks_between(const PlacedPieces& own, const Visible& window,
                                           const Counts& counts) {
  std::vector<AttentionBlock> blocks;
  for (const PlacedPiece& queries : own) {
    for (const PlacedPiece& keys : own) {
      const bool hidden = window.mask == AttentionMask::kCausal && keys.piece.begin >= queries.piece.begin;
      if (hidden || keys.piece.begin == queries.piece.begin || !counts(queries, keys)) continue;
      const base::Interval some = seen_in_window(keys, queries, window);
      if (!some.empty()) blocks.push_back(block_in_window(queries, some, keys.rows_at(some), window));
    }
  }
  return blocks;
}

// Whether any lane sees rows of the lane `behind` places before it.
bool some_see(const std::vector<PlacedPieces>& pieces, size_t behind, const Visible& window) {
  for (size_t lane = 0; lane < pieces.size(); ++lane) {
    const PlacedPieces& other = pieces[(lane + pieces.size() - behind) % pieces.size()];
    if (sight(pieces[lane], other, window).count > 0) return true;
  }
  return false;
}

}  // namespace

bool RowTransfers::lends_keys() const {
  return std::ranges::any_of(steps, [](const Step& step) {
    return step.remote_attention && step.remote_attention->others == Rows::kQueries;
  });
}

RowTransfers row_transfers(const RingSpans& ring, const RowSchedule& schedule) {
  SLUICE_ASSERT(ring.lanes.size() == static_cast<size_t>(schedule.lanes),
                base::text("a schedule of ", schedule.lanes, " lanes for ", ring.lanes.size()));
  SLUICE_ASSERT(!schedule.contiguous || ring.mask == AttentionMask::kCausal,
                "later lanes alone see earlier ones, and attention is not causal");
  return Compiler(ring, schedule)();
}

RowTransfers window_row_transfers(const RingSpans& ring, int64_t width) {
  const Visible window{width, ring.mask};
  std::vector<PlacedPieces> pieces;  // by lane, pieces of shared sequences
  for (const std::vector<PieceSpan>& lane : ring.lanes) pieces.push_back(shared_pieces(lane));
  const PlacedPieces& own = pieces[static_cast<size_t>(ring.lane)];
  const auto lanes = static_cast<int>(pieces.size());
  std::vector<int> behind;
  for (int lane = 1; lane < lanes; ++lane) {
    if (some_see(pieces, static_cast<size_t>(lane), window)) behind.push_back(lane);
  }
  RowTransfers transfers = row_transfers(ring, strategy::direct_schedule(lanes, behind));
  // Restricts a transfer to the rows that are seen.
  const auto narrow = [&](RowTransfers::Transfer& transfer, int other) {
    Sight seen = transfer.own ? sight(pieces[static_cast<size_t>(other)], own, window)
                              : sight(own, pieces[static_cast<size_t>(transfer.of)], window);
    transfer.count = seen.count;
    if (transfer.own) transfer.own_rows = std::move(seen.rows);
  };
  for (size_t step = 0; step < transfers.steps.size(); ++step) {
    RowTransfers::Step& at = transfers.steps[step];
    const auto seer = [&](size_t hop_step) { return (ring.lane + behind[hop_step]) % lanes; };
    for (RowTransfers::Transfer& hop : at.hops) narrow(hop, seer(step));
    for (RowTransfers::Transfer& of : at.returns) narrow(of, seer(step - 1));
    if (!at.remote_attention) continue;
    Sight seen = sight(own, pieces[static_cast<size_t>(at.remote_attention->of)], window);
    at.remote_attention->count = seen.count;
    at.remote_attention->blocks = std::move(seen.blocks);
  }
  return transfers;
}

std::vector<AttentionBlock> blocks_in_window(const std::vector<PieceSpan>& pieces, int64_t window,
                                             AttentionMask mask) {
  return blocks_between(placed_pieces(pieces), {window, mask},
                        [](const PlacedPiece&, const PlacedPiece&) { return true; });
}

std::vector<AttentionBlock> prefix_blocks(const std::vector<PieceSpan>& pieces) {
  std::vector<AttentionBlock> blocks;
  if (std::ranges::none_of(pieces, &PieceSpan::branch)) return blocks;
  const PlacedPieces placed = placed_pieces(pieces);
  add_blocks(placed, placed, Seen::kPrefix, AttentionMask::kCausal, blocks);
  return blocks;
}

std::vector<AttentionBlock> prefix_blocks_in_window(const std::vector<PieceSpan>& pieces, int64_t window) {
  if (std::ranges::none_of(pieces, &PieceSpan::branch)) return {};
  return blocks_between(placed_pieces(pieces), {window},
                        [](const PlacedPiece& queries, const PlacedPiece& keys) {
                          return queries.piece.branch && !keys.piece.branch;
                        });
}

}  // namespace sluice::layers
