#include "layers/ring_layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::layers {
namespace {

// A piece with its rows in the micro-batch or block.
struct PlacedPiece {
  PieceSpan piece;
  base::Interval rows;
};

std::vector<PlacedPiece> placed_pieces(const std::vector<PieceSpan>& pieces) {
  std::vector<PlacedPiece> placed;
  int64_t row = 0;
  for (const PieceSpan& piece : pieces) {
    placed.push_back({piece, {row, row + piece.length}});
    row += piece.length;
  }
  return placed;
}

std::vector<PlacedPiece> shared_in_micro_batch(const std::vector<PieceSpan>& pieces) {
  std::vector<PlacedPiece> placed = placed_pieces(pieces);
  std::erase_if(placed, [](const PlacedPiece& piece) { return piece.piece.shared < 0; });
  return placed;
}

std::vector<PlacedPiece> shared_in_block(const std::vector<PieceSpan>& pieces) {
  std::vector<PlacedPiece> placed;
  int64_t row = 0;
  for (const PieceSpan& piece : pieces) {
    if (piece.shared < 0) continue;
    placed.push_back({piece, {row, row + piece.length}});
    row += piece.length;
  }
  return placed;
}

// Of the block's rows those before the piece, in its own sequence or in its prefix: they lie end to end.
enum class Seen : uint8_t { kOwn, kPrefix };
base::Interval seen_by(const PieceSpan& queries, const std::vector<PlacedPiece>& block, Seen what) {
  base::Interval keys;
  for (const auto& [piece, rows] : block) {
    const Seen of = piece.branch == queries.branch ? Seen::kOwn : Seen::kPrefix;
    if (of != what || !queries.sees(piece) || piece.begin + piece.length > queries.begin) continue;
    SLUICE_ASSERT(keys.empty() || keys.end == rows.begin, "pieces of a sequence lie apart in a ring's block");
    keys = {keys.empty() ? rows.begin : keys.begin, rows.end};
  }
  return keys;
}

// Queries that see the same keys are one block.
std::vector<ops::AttentionBlock> attention_blocks(const std::vector<PlacedPiece>& own,
                                                  const std::vector<PlacedPiece>& block, Seen what) {
  std::vector<ops::AttentionBlock> blocks;
  for (const auto& [piece, rows] : own) {
    const base::Interval keys = seen_by(piece, block, what);
    if (keys.empty()) continue;
    if (!blocks.empty() && blocks.back().keys == keys && blocks.back().queries.end == rows.begin) {
      blocks.back().queries.end = rows.end;
      continue;
    }
    SLUICE_ASSERT(blocks.empty() || blocks.back().keys.end <= keys.begin,
                  base::text("pieces of one lane see different parts of a ring's block"));
    blocks.push_back({rows, keys});
  }
  return blocks;
}

}  // namespace

std::vector<ops::AttentionBlock> prefix_blocks(const std::vector<PieceSpan>& pieces) {
  if (std::ranges::none_of(pieces, &PieceSpan::branch)) return {};
  const std::vector<PlacedPiece> placed = placed_pieces(pieces);
  return attention_blocks(placed, placed, Seen::kPrefix);
}

int64_t RingLayout::most_rows() const { return *std::ranges::max_element(block_rows); }

RingLayout ring_layout(const RingSpans& ring) {
  const int lanes = static_cast<int>(ring.lanes.size());
  RingLayout layout{.lanes = lanes,
                    .lane = ring.lane,
                    .next = ring.member_after(1),
                    .previous = ring.member_after(lanes - 1)};
  std::vector<std::vector<PlacedPiece>> blocks;
  for (const std::vector<PieceSpan>& pieces : ring.lanes) {
    blocks.push_back(shared_in_block(pieces));
    layout.block_rows.push_back(blocks.back().empty() ? 0 : blocks.back().back().rows.end);
  }
  const auto own = shared_in_micro_batch(ring.lanes[static_cast<size_t>(ring.lane)]);
  for (const PlacedPiece& placed : own) {
    if (!layout.own_rows.empty() && layout.own_rows.back().end == placed.rows.begin) {
      layout.own_rows.back().end = placed.rows.end;
    } else {
      layout.own_rows.push_back(placed.rows);
    }
  }
  for (int step = 1; step < lanes; ++step) {
    const std::vector<PlacedPiece>& block = blocks[static_cast<size_t>((ring.lane + lanes - step) % lanes)];
    std::vector<ops::AttentionBlock>& seen = layout.steps.emplace_back();
    for (const Seen what : {Seen::kOwn, Seen::kPrefix}) {
      for (const ops::AttentionBlock& each : attention_blocks(own, block, what)) seen.push_back(each);
    }
  }
  return layout;
}

}  // namespace sluice::layers
