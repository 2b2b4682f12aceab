#include "layers/row_layout.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/engine_step_rows.h"
#include "model/layer.h"
#include "model/layer_of.h"
#include "ops/device.h"

namespace sluice::layers {
namespace {

// Consecutive pieces of one sequence count as one.
ops::PackedSequences packed(const std::vector<PieceSpan>& pieces, const at::Device& device) {
  std::vector<int64_t> lengths;
  int before = -1;
  for (const PieceSpan& piece : pieces) {
    if (piece.shared >= 0 && piece.shared == before) {
      lengths.back() += piece.length;
    } else {
      lengths.push_back(piece.length);
    }
    before = piece.shared;
  }
  return ops::packed_sequences(lengths, device);
}

std::vector<int64_t> lengths_of(const std::vector<PieceSpan>& pieces) {
  std::vector<int64_t> lengths;
  for (const PieceSpan& piece : pieces) lengths.push_back(piece.length);
  return lengths;
}

// Pieces cut where a chunk ends, for attention by chunks of positions; else unchanged.
std::vector<PieceSpan> in_chunks(const std::vector<PieceSpan>& pieces, const Reach& reach, int64_t window) {
  if (!reach.chunked) return pieces;
  std::vector<PieceSpan> cut;
  for (PieceSpan left : pieces) {
    while (left.length > 0) {
      PieceSpan next = left;
      next.chunk = left.begin / window;
      next.length = std::min(left.length, (next.chunk + 1) * window - left.begin);
      cut.push_back(next);
      left.begin += next.length;
      left.length -= next.length;
    }
  }
  return cut;
}

RecurrentRows recurrent_rows_of(const RingSpans& ring, int64_t rows, const Reach& reach,
                                const at::Device& device) {
  return recurrent_rows(lengths_of(ring.lanes[static_cast<size_t>(ring.lane)]), rows, reach.convolution, ring,
                        device);
}

// For one lane, or for heads that only this lane attends with.
void attend_alone(const std::vector<PieceSpan>& pieces, const Reach& reach, const at::Device& device,
                  RowLayout& layout) {
  layout.attended = {packed(pieces, device), prefix_blocks(pieces), {}};
  for (const int64_t window : reach.windows) {
    const std::vector<PieceSpan> seen = in_chunks(pieces, reach, window);
    layout.windowed.push_back(
        {window,
         {reach.chunked ? ops::packed_sequences(lengths_of(seen), device) : layout.attended.sequences,
          prefix_blocks_in_window(seen, window),
          {}},
         {}});
  }
}

RowLayout rows_of(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device) {
  SLUICE_ASSERT(!pieces.empty(), "a micro-batch without pieces");
  RowLayout layout;
  std::vector<int64_t> positions;
  for (const PieceSpan& piece : pieces) {
    for (int64_t i = 0; i < piece.length; ++i) positions.push_back(piece.begin + i);
    layout.longest = std::max(layout.longest, piece.begin + piece.length);
  }
  layout.tokens = static_cast<int64_t>(positions.size());
  layout.rows = (layout.tokens + tp - 1) / tp * tp;
  layout.position_T = row_values(positions, layout, device, 0);
  return layout;
}

// Counts pieces on all lanes that share sequences with this one.
SequenceRows sequence_rows(const LanePartSpans& micro_batch, const RowLayout& layout,
                           const at::Device& device) {
  const auto own = static_cast<size_t>(micro_batch.lane);
  SequenceRows rows;
  for (size_t lane = 0; lane < micro_batch.lanes.size(); ++lane) {
    if (lane != own) rows.others.push_back(micro_batch.members[lane]);
    for (const PieceSpan& piece : micro_batch.lanes[lane]) {
      if (piece.shared < 0) continue;
      rows.shared = std::max<int64_t>(rows.shared, piece.shared + 1);
      rows.lengths.resize(static_cast<size_t>(rows.shared));
      rows.lengths[static_cast<size_t>(piece.shared)] += piece.length;
    }
  }
  std::vector<int64_t> sequences;
  for (const PieceSpan& piece : micro_batch.lanes[own]) {
    const auto sequence = piece.shared < 0 ? static_cast<int64_t>(rows.lengths.size()) : piece.shared;
    if (piece.shared < 0) rows.lengths.push_back(piece.length);
    sequences.insert(sequences.end(), static_cast<size_t>(piece.length), sequence);
  }
  rows.sequence_T = row_values(sequences, layout, device, static_cast<int64_t>(rows.lengths.size()));
  return rows;
}

// The rows of a head group, sequence by sequence.
struct GroupRows {
  std::vector<PieceSpan> pieces;   // consecutive chunks are one piece
  std::vector<int64_t> wire_rows;  // places of the rows when rows lie lane after lane
};

bool is_shared(const PieceSpan& piece) { return piece.shared >= 0; }

std::vector<std::vector<PieceSpan>> shared_of(std::vector<std::vector<PieceSpan>> lanes) {
  for (std::vector<PieceSpan>& pieces : lanes) {
    SLUICE_ASSERT(std::ranges::is_partitioned(pieces, is_shared), "a lane's own rows lie before shared ones");
    std::erase_if(pieces, [](const PieceSpan& piece) { return !is_shared(piece); });
  }
  return lanes;
}

// Chunks on neighbouring lanes join to coarser chunks of the same cutting. Unshared sequences of the lanes
// lie behind them.
GroupRows group_rows(std::span<const std::vector<PieceSpan>> lanes) {
  struct Placed {
    PieceSpan piece;
    int64_t wire_row = 0;
  };
  std::vector<Placed> placed;
  int64_t row = 0;
  for (const std::vector<PieceSpan>& pieces : lanes) {
    for (const PieceSpan& piece : pieces) {
      placed.push_back({piece, row});
      row += piece.length;
    }
  }
  std::ranges::sort(placed, {}, [](const Placed& p) {
    return std::tuple(!is_shared(p.piece), p.piece.shared, is_shared(p.piece) ? p.piece.begin : p.wire_row);
  });
  GroupRows group;
  for (const auto& [piece, wire_row] : placed) {
    for (int64_t i = 0; i < piece.length; ++i) group.wire_rows.push_back(wire_row + i);
    PieceSpan* last = group.pieces.empty() ? nullptr : &group.pieces.back();
    if (last != nullptr && is_shared(piece) && last->shared == piece.shared &&
        last->begin + last->length == piece.begin) {
      last->length += piece.length;
    } else {
      group.pieces.push_back(piece);
    }
  }
  return group;
}

// `lanes`: the micro-batch's pieces that are exchanged.
HeadsLayout heads_layout(const LanePartSpans& micro_batch, std::span<const std::vector<PieceSpan>> lanes,
                         const std::vector<int64_t>& wire_rows, const at::Device& device) {
  const int first = micro_batch.lane / micro_batch.head_lanes * micro_batch.head_lanes;
  HeadsLayout heads{.lane = micro_batch.lane - first};
  for (int lane = first; lane < first + micro_batch.head_lanes; ++lane) {
    heads.members.push_back(micro_batch.members[static_cast<size_t>(lane)]);
    int64_t& rows = heads.lane_rows.emplace_back(0);
    for (const PieceSpan& piece : lanes[static_cast<size_t>(lane)]) rows += piece.length;
  }
  std::vector<int64_t> attended_rows(wire_rows.size());
  for (size_t row = 0; row < wire_rows.size(); ++row)
    attended_rows[static_cast<size_t>(wire_rows[row])] = static_cast<int64_t>(row);
  heads.wire_row_A = ops::to_device(wire_rows, device);
  heads.attended_row_A = ops::to_device(attended_rows, device);
  return heads;
}

// The ring over the micro-batch's head groups: each lane meets those with the same heads.
RingSpans ring_of_groups(const LanePartSpans& micro_batch, std::vector<std::vector<PieceSpan>> groups,
                         AttentionMask mask) {
  RingSpans ring{.lane = micro_batch.lane / micro_batch.head_lanes,
                 .members = {},
                 .lanes = std::move(groups),
                 .mask = mask};
  for (size_t lane = static_cast<size_t>(micro_batch.lane % micro_batch.head_lanes);
       lane < micro_batch.lanes.size(); lane += static_cast<size_t>(micro_batch.head_lanes)) {
    ring.members.push_back(micro_batch.members[lane]);
  }
  return ring;
}

}  // namespace

namespace {

const WindowRows& rows_through(const RowLayout& layout, int64_t window) {
  const auto found = std::ranges::find(layout.windowed, window, &WindowRows::window);
  SLUICE_ASSERT(found != layout.windowed.end(), base::text("no rows for a window of ", window));
  return *found;
}

}  // namespace

const AttendedRows& RowLayout::attended_through(int64_t window) const {
  return window == 0 ? attended : rows_through(*this, window).attended;
}

const std::vector<ops::AttentionBlock>& RowLayout::cached_through(int64_t window) const {
  return window == 0 ? cached.before : rows_through(*this, window).before;
}

Reach reach_of(const model::Model& model) {
  const model::StateHeads* states = model.states();
  return {model.windows(), model.attends_by_chunks(), states == nullptr ? 0 : states->convolution,
          model.causal() ? AttentionMask::kCausal : AttentionMask::kFull};
}

RowLayout row_layout(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device,
                     const Reach& reach) {
  for (const PieceSpan& piece : pieces) {
    SLUICE_ASSERT(piece.shared < 0 && (piece.begin == 0 || piece.branch),
                  "a piece of a micro-batch of several lanes on one lane");
  }
  RowLayout layout = rows_of(pieces, tp, device);
  attend_alone(pieces, reach, device, layout);
  layout.sequences = sequence_rows({.lane = 0, .members = {0}, .lanes = {pieces}}, layout, device);
  if (reach.convolution > 0)
    layout.recurrent = recurrent_rows_of({.members = {0}, .lanes = {pieces}}, layout.rows, reach, device);
  return layout;
}

namespace {

// Lanes of a micro-batch in groups that exchange heads: the groups' pieces, and the exchange within this
// lane's group. A group of one lane exchanges nothing.
struct HeadGroups {
  HeadsLayout heads;
  RingSpans ring;
};

HeadGroups head_groups(const LanePartSpans& micro_batch, std::vector<std::vector<PieceSpan>> lanes,
                       AttentionMask mask, const at::Device& device) {
  if (micro_batch.head_lanes == 1) return {{}, ring_of_groups(micro_batch, std::move(lanes), mask)};
  HeadGroups made;
  std::vector<std::vector<PieceSpan>> groups;
  const auto own_group = static_cast<size_t>(micro_batch.lane / micro_batch.head_lanes);
  for (size_t first = 0; first < lanes.size(); first += static_cast<size_t>(micro_batch.head_lanes)) {
    GroupRows rows = group_rows(std::span(lanes).subspan(first, static_cast<size_t>(micro_batch.head_lanes)));
    if (groups.size() == own_group) made.heads = heads_layout(micro_batch, lanes, rows.wire_rows, device);
    groups.push_back(std::move(rows.pieces));
  }
  made.ring = ring_of_groups(micro_batch, std::move(groups), mask);
  return made;
}

// The layout of the unshared sequences of a lane that exchanges heads.
std::shared_ptr<const RowLayout> own_layout(const std::vector<PieceSpan>& pieces, const Reach& reach,
                                            const at::Device& device) {
  std::vector<PieceSpan> own;
  std::ranges::copy_if(pieces, std::back_inserter(own), [](const PieceSpan& of) { return !is_shared(of); });
  if (own.empty()) return nullptr;
  auto layout = std::make_shared<RowLayout>(rows_of(own, 1, device));
  attend_alone(own, reach, device, *layout);
  return layout;
}

}  // namespace

RowLayout cp_row_layout(const LanePartSpans& micro_batch, int tp, const at::Device& device,
                        const Reach& reach) {
  const std::vector<PieceSpan>& own = micro_batch.lanes[static_cast<size_t>(micro_batch.lane)];
  RowLayout layout = rows_of(own, tp, device);
  layout.sequences = sequence_rows(micro_batch, layout, device);
  if (reach.convolution > 0) {
    HeadGroups all = head_groups(micro_batch, micro_batch.lanes, reach.mask, device);
    const int64_t rows = all.heads.exchanges() ? all.heads.rows() : layout.rows;
    layout.recurrent = recurrent_rows_of(all.ring, rows, reach, device);
    layout.recurrent_heads = std::move(all.heads);
  }
  const bool exchanges = micro_batch.head_lanes > 1;
  HeadGroups groups = head_groups(micro_batch, exchanges ? shared_of(micro_batch.lanes) : micro_batch.lanes,
                                  reach.mask, device);
  layout.heads = std::move(groups.heads);
  if (exchanges) layout.own = own_layout(own, reach, device);
  const RingSpans& ring = groups.ring;
  const std::vector<PieceSpan>& attending = ring.lanes[static_cast<size_t>(ring.lane)];
  const auto lanes = static_cast<int>(ring.lanes.size());
  if (lanes == 1) {
    attend_alone(attending, reach, device, layout);
    return layout;
  }
  const int in_node = strategy::members_in_node(lanes, micro_batch.head_lanes, micro_batch.in_node);
  layout.attended = {packed(attending, device), prefix_blocks(attending),
                     row_transfers(ring, strategy::schedule_of(micro_batch.exchange, lanes, in_node))};
  // Positions matter in a window, so pieces are not joined.
  for (const int64_t window : reach.windows) {
    RingSpans seen = ring;
    for (std::vector<PieceSpan>& pieces : seen.lanes) pieces = in_chunks(pieces, reach, window);
    const std::vector<PieceSpan>& own_seen = seen.lanes[static_cast<size_t>(seen.lane)];
    layout.windowed.push_back(
        {window,
         {ops::packed_sequences(lengths_of(own_seen), device), blocks_in_window(own_seen, window, reach.mask),
          window_row_transfers(seen, window)},
         {}});
  }
  return layout;
}

namespace {

// The first position that a piece's first row sees; no later row sees further back.
int64_t first_seen(int64_t begin, bool chunked, int64_t window) {
  return chunked ? begin / window * window : begin + 1 - window;
}

// Attention of a piece's rows to the cache through a window.
void see_before(const CachedPiece& piece, base::Interval queries, bool chunked, WindowRows& rows) {
  const int64_t first = first_seen(piece.begin, chunked, rows.window);
  // Beyond the first row's chunk no row sees what was before the piece.
  if (chunked) queries.end = std::min(queries.end, queries.begin + rows.window - piece.begin % rows.window);
  int64_t position = 0;
  for (const base::Interval& keys : piece.before) {
    const int64_t hidden = std::clamp<int64_t>(first - position, 0, keys.size());
    const int64_t shown = chunked ? hidden : 0;
    if (hidden < keys.size())
      rows.before.push_back({queries, {keys.begin + shown, keys.end}, piece.begin - position - shown});
    position += keys.size();
  }
}

struct Slot {
  int64_t of_text = 0;
  bool goes_on = false;
};

// Adds the slots of states for whole pieces.
void add_states(RowLayout& layout, const std::vector<PieceSpan>& pieces, const std::vector<Slot>& slots,
                const Reach& reach, const at::Device& device) {
  std::vector<int64_t> of_text, goes_on;
  for (const Slot& slot : slots) {
    of_text.push_back(slot.of_text);
    goes_on.push_back(slot.goes_on ? 1 : 0);
  }
  layout.cached.slot_P = ops::to_device(of_text, device);
  layout.cached.goes_on_P = ops::to_device(goes_on, device);
  layout.recurrent = recurrent_rows_of({.members = {0}, .lanes = {pieces}}, layout.rows, reach, device);
}

}  // namespace

namespace {

ops::PagedSequences paged_of(const std::vector<CachedPiece>& pieces, int64_t kv_block_rows,
                             const at::Device& device) {
  std::vector<ops::PagedSequence> sequences;
  int64_t row = 0;
  for (const CachedPiece& piece : pieces) {
    sequences.push_back({{row, row + piece.length}, piece.begin + piece.length, piece.kv_blocks});
    row += piece.length;
  }
  return ops::paged_sequences(std::move(sequences), kv_block_rows, device);
}

std::vector<WindowRows> windows_of(const Reach& reach) {
  std::vector<WindowRows> all;
  for (const int64_t window : reach.windows) all.push_back({.window = window});
  return all;
}

}  // namespace

RowLayout cached_row_layout(const std::vector<CachedPiece>& pieces, const KvCache& cache, int tp,
                            const at::Device& device, const Reach& reach, int64_t kv_block_rows) {
  std::vector<PieceSpan> spans;
  std::vector<int64_t> written;
  std::vector<Slot> slots;
  CachedRows cached{.cache = &cache};
  std::vector<WindowRows> windowed = windows_of(reach);
  int64_t row = 0;
  for (const CachedPiece& piece : pieces) {
    spans.push_back({piece.length, piece.begin});
    slots.push_back({piece.slot, piece.begin > 0});
    for (const base::Interval& rows : piece.own) {
      for (int64_t own = rows.begin; own < rows.end; ++own) written.push_back(own);
    }
    const base::Interval queries{row, row + piece.length};
    for (WindowRows& rows : windowed) see_before(piece, queries, reach.chunked, rows);
    int64_t position = 0;
    for (const base::Interval& keys : piece.before) {
      cached.before.push_back({queries, keys, piece.begin - position});
      position += keys.size();
    }
    row += piece.length;
  }
  RowLayout layout = rows_of(spans, tp, device);
  layout.attended.sequences = packed(spans, device);
  for (WindowRows& rows : windowed) {
    rows.attended.sequences =
        reach.chunked ? ops::packed_sequences(lengths_of(in_chunks(spans, reach, rows.window)), device)
                      : layout.attended.sequences;
  }
  layout.windowed = std::move(windowed);
  cached.row_T = ops::to_device(written, device);
  // Chunks of attention are no bands of keys.
  if (!device.is_cpu() && kv_block_rows > 0 && !reach.chunked)
    cached.paged = paged_of(pieces, kv_block_rows, device);
  layout.cached = std::move(cached);
  if (reach.convolution > 0) add_states(layout, spans, slots, reach, device);
  return layout;
}

namespace {

// A lane's KV blocks of an engine step's pieces.
class LanePages {
 public:
  LanePages(const CacheLanes& lanes, std::vector<WindowRows> windowed)
      : windowed(std::move(windowed)), lanes_(lanes) {}

  void add(const KvBlockPiece& piece, int64_t row) {
    const int64_t end = piece.begin + piece.length;
    const base::Interval queries{row, row + piece.length};
    for (int64_t number = 0; number < std::ssize(piece.kv_blocks); ++number) {
      const int64_t page = piece.kv_blocks[static_cast<size_t>(number)];
      const auto count = std::ssize(lanes_.members);
      if (page % count != lanes_.own) continue;
      const int64_t first = number * lanes_.kv_block_rows, kept = page / count * lanes_.kv_block_rows;
      const base::Interval tokens = base::intersect({first, first + lanes_.kv_block_rows}, {0, end});
      add_before(queries, {first, std::min(tokens.end, piece.begin)}, kept, piece.begin);
      const base::Interval own = base::intersect(tokens, {piece.begin, end});
      if (own.empty()) continue;
      const int64_t own_row = row + own.begin - piece.begin, at = kept + own.begin - first;
      for (int64_t i = 0; i < own.size(); ++i) {
        kept_rows.push_back(own_row + i);
        cache_rows.push_back(at + i);
      }
      within.push_back({{own_row, queries.end}, {at, at + own.size()}, 0});
    }
  }

  std::vector<int64_t> kept_rows, cache_rows;
  std::vector<ops::AttentionBlock> before, within;
  std::vector<WindowRows> windowed;

 private:
  void add_before(base::Interval queries, base::Interval tokens, int64_t kept, int64_t begin) {
    if (tokens.empty()) return;
    const base::Interval keys{kept, kept + tokens.size()};
    // The first row sees furthest back.
    for (WindowRows& rows : windowed) {
      if (tokens.end > begin + 1 - rows.window) rows.before.push_back({queries, keys, begin - tokens.begin});
    }
    ops::AttentionBlock* last = before.empty() ? nullptr : &before.back();
    if (last != nullptr && last->queries == queries && last->keys.end == keys.begin) {
      last->keys.end = keys.end;
    } else {
      before.push_back({queries, keys});
    }
  }

  const CacheLanes& lanes_;
};

std::vector<base::Interval> computed_rows(int64_t rows, int64_t lanes, bool has_states) {
  std::vector<base::Interval> computed;
  const bool cut = model::splits_engine_step(rows, lanes, has_states);
  for (int64_t lane = 0; lane < lanes; ++lane)
    computed.push_back(cut ? base::even_part(rows, lanes, lane) : base::Interval{0, rows});
  return computed;
}

}  // namespace

RowLayout kv_block_row_layout(const std::vector<KvBlockPiece>& pieces, const CacheLanes& lanes,
                              const KvCache& cache, int tp, const at::Device& device, const Reach& reach) {
  SLUICE_ASSERT(lanes.members.size() > 1, "a cache of one lane");
  if (reach.chunked)
    throw base::InputError(
        "attention by chunks is generated where one lane has the cache: give a strategy without lanes");
  LanePages pages(lanes, windows_of(reach));
  CacheOfLanes of{.members = lanes.members, .own = lanes.own};
  for (const KvBlockPiece& piece : pieces) {
    pages.add(piece, of.engine_step_rows);
    of.engine_step_rows += piece.length;
  }
  of.rows = computed_rows(of.engine_step_rows, std::ssize(lanes.members), reach.convolution > 0);
  std::vector<PieceSpan> spans;
  std::vector<Slot> slots;
  int64_t row = 0;
  for (const KvBlockPiece& piece : pieces) {
    const base::Interval own = base::intersect(of.own_rows(), {row, row + piece.length});
    if (!own.empty()) spans.push_back({.length = own.size(), .begin = piece.begin + own.begin - row});
    slots.push_back({piece.slot, piece.begin > 0});
    row += piece.length;
  }
  RowLayout layout = rows_of(spans, tp, device);
  of.kept_row_T = ops::to_device(pages.kept_rows, device);
  of.within = std::move(pages.within);
  layout.cached = {.cache = &cache,
                   .row_T = ops::to_device(pages.cache_rows, device),
                   .before = std::move(pages.before),
                   .lanes = std::move(of)};
  layout.windowed = std::move(pages.windowed);
  if (reach.convolution > 0) add_states(layout, spans, slots, reach, device);
  return layout;
}

at::Tensor row_values(const std::vector<int64_t>& values, const RowLayout& layout, const at::Device& device,
                      int64_t filler) {
  SLUICE_ASSERT(static_cast<int64_t>(values.size()) == layout.tokens,
                base::text(values.size(), " values for ", layout.tokens, " tokens"));
  const at::Tensor host = ops::upload_buffer(layout.rows, at::kLong, device);
  int64_t* rows = host.mutable_data_ptr<int64_t>();
  std::fill(std::copy(values.begin(), values.end(), rows), rows + layout.rows, filler);
  return ops::upload(host, device);
}

}  // namespace sluice::layers
