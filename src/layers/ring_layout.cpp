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

std::vector<PlacedPiece> shared_in_micro_batch(const std::vector<PieceSpan>& pieces) {
  std::vector<PlacedPiece> placed;
  int64_t row = 0;
  for (const PieceSpan& piece : pieces) {
    if (piece.shared >= 0) placed.push_back({piece, {row, row + piece.length}});
    row += piece.length;
  }
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

// The block's rows before the piece in its sequence: they lie end to end.
base::Interval seen_by(const PieceSpan& queries, const std::vector<PlacedPiece>& block) {
  base::Interval keys;
  for (const auto& [piece, rows] : block) {
    if (piece.shared != queries.shared || piece.begin + piece.length > queries.begin) continue;
    SLUICE_ASSERT(keys.empty() || keys.end == rows.begin, "pieces of a sequence lie apart in a ring's block");
    keys = {keys.empty() ? rows.begin : keys.begin, rows.end};
  }
  return keys;
}

std::vector<ops::AttentionBlock> attention_blocks(const std::vector<PlacedPiece>& own,
                                                  const std::vector<PlacedPiece>& block) {
  std::vector<ops::AttentionBlock> blocks;
  for (const auto& [piece, rows] : own) {
    const base::Interval keys = seen_by(piece, block);
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
    layout.steps.push_back(
        attention_blocks(own, blocks[static_cast<size_t>((ring.lane + lanes - step) % lanes)]));
  }
  return layout;
}

}  // namespace sluice::layers
