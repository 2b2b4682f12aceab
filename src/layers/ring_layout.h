// How one lane's rows meet those of the other lanes that share its sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "ops/attention.h"

namespace sluice::layers {

// A piece of one sequence as layers see it.
struct PieceSpan {
  int64_t length = 0;  // tokens
  int64_t begin = 0;   // position of the first token in its sequence
  int shared = -1;     // which of the ring's sequences it is a piece of; -1: it is a whole sequence
  // Sequences that go on from another see all of it, beside themselves: a prefix and its branches are one
  // family. Positions of branches follow the prefix's. -1: of none.
  int family = -1;
  bool branch = false;

  // Whether its tokens see the other's, as far as these stand before them.
  bool sees(const PieceSpan& other) const {
    if (branch && !other.branch && family == other.family) return true;
    return shared >= 0 && shared == other.shared;
  }
};

// The tied micro-batches of a ring, seen from one of its lanes.
struct RingSpans {
  int lane = 0;                               // this lane's place in the ring
  std::vector<int> members;                   // of the ring communicator, by lane of the ring
  std::vector<std::vector<PieceSpan>> lanes;  // the micro-batches, by lane of the ring

  int member_after(int further) const {
    return members[(static_cast<size_t>(lane) + static_cast<size_t>(further)) % members.size()];
  }
};

// A lane's *block* is its shared pieces end to end. Blocks go round: in step s a lane holds the block of the
// lane s before it (s = 0: its own).
struct RingLayout {
  int lanes = 1;  // 1: no ring
  int lane = 0;
  // Members of the ring communicator: whom blocks go to and whom they come from.
  int next = -1;
  int previous = -1;
  std::vector<int64_t> block_rows;       // by lane
  std::vector<base::Interval> own_rows;  // the micro-batch's rows that its own block consists of
  // By step from the second on: which queries (rows of the micro-batch) see which keys (rows of the block).
  std::vector<std::vector<ops::AttentionBlock>> steps;

  int64_t rows_in_step(int step) const {
    return block_rows[static_cast<size_t>((lane + lanes - step % lanes) % lanes)];
  }
  int64_t most_rows() const;
};

// REQUIRES: pieces of a sequence ascend in every micro-batch and overlap none of another lane; all queries of
// a lane that see anything of a block's sequence see the same of it, as with causal cutting; those of a
// prefix lie end to end, and so do those of its branches.
RingLayout ring_layout(const RingSpans& ring);

// What branches in a micro-batch see of its own pieces of their prefixes.
std::vector<ops::AttentionBlock> prefix_blocks(const std::vector<PieceSpan>& pieces);

}  // namespace sluice::layers
