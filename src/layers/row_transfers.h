// What one lane does of a schedule of rows that travel (strategy/row_schedule.h), with the rows of its
// micro-batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/interval.h"
#include "ops/attention.h"
#include "strategy/row_schedule.h"

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
  // Of attention by chunks of positions, which one of its sequence; -1: chunks don't count.
  int64_t chunk = -1;

  // Whether its tokens see the other's, as far as these stand before them.
  bool sees(const PieceSpan& other) const {
    if (chunk != other.chunk) return false;
    if (branch && !other.branch && family == other.family) return true;
    return shared >= 0 && shared == other.shared;
  }
};

// The tokens of its sequence that a token sees, as far as a window reaches: those before it, or all.
enum class AttentionMask : uint8_t { kCausal, kFull };

// The tied micro-batches of lanes that share sequences, seen from one of them.
struct RingSpans {
  int lane = 0;                               // this lane's place among them
  std::vector<int> members;                   // of the lanes' communicator, by lane
  std::vector<std::vector<PieceSpan>> lanes;  // the micro-batches, by lane
  AttentionMask mask = AttentionMask::kCausal;
};

// Of a lane's shared rows, those of its pieces of shared sequences, whatever travels lies end to end.
struct RowTransfers {
  using Rows = strategy::RowSchedule::Rows;

  struct Transfer {
    bool leaves = false;  // or comes
    Rows rows = Rows::kKeys;
    int of = 0;  // the lane whose rows they are
    int member = -1;
    int due = 0;                                // in this step it is there
    bool slow = false;                          // is under way for longer than a step
    int64_t count = 0;                          // rows
    bool own = false;                           // they are this lane's own
    std::vector<base::Interval> own_rows = {};  // which of the micro-batch's
  };
  // This lane attends: its queries to the keys of another, or another's queries to its keys. Of the other's
  // the blocks count rows as they lie here, of its own those of the micro-batch.
  struct RemoteAttention {
    Rows others = Rows::kKeys;
    int of = 0;
    int64_t count = 0;  // of the other's rows
    std::vector<ops::AttentionBlock> blocks;
  };
  struct Step {
    std::vector<Transfer> hops;
    std::optional<RemoteAttention> remote_attention;
    std::vector<Transfer> returns;
    // Others' rows that nobody here needs any more behind this step.
    std::vector<std::pair<Rows, int>> done = {};
  };

  int lanes = 1;  // 1: nothing travels
  int lane = 0;
  std::vector<Step> steps;

  // Whether others' queries meet this lane's keys.
  bool lends_keys() const;
};

// REQUIRES: pieces of a sequence ascend in every micro-batch and overlap none of another lane; all queries of
// a lane that see anything of another's sequence see the same of it, as with causal cutting and with
// contiguous parts, these of causal attention alone; those of a prefix lie end to end, and so do those of its
// branches.
RowTransfers row_transfers(const RingSpans& ring, const strategy::RowSchedule& schedule);

// Through a window: what a lane's tokens see of another's is at most a window in front of each of its pieces,
// or also behind it, so these rows alone come, straight from where they lie, and rows that several pieces see
// come once. Step by step those of lanes that lie further behind; steps in which nobody sees anything are
// left out for all, so that what two lanes exchange comes in one order. REQUIRES: window > 0; pieces as
// above, cut in any way.
RowTransfers window_row_transfers(const RingSpans& ring, int64_t width);

// Rows that a micro-batch's pieces see through a window of each other, all apart.
std::vector<ops::AttentionBlock> blocks_in_window(const std::vector<PieceSpan>& pieces, int64_t window,
                                                  AttentionMask mask = AttentionMask::kCausal);

// What branches in a micro-batch see of its own pieces of their prefixes.
std::vector<ops::AttentionBlock> prefix_blocks(const std::vector<PieceSpan>& pieces);
std::vector<ops::AttentionBlock> prefix_blocks_in_window(const std::vector<PieceSpan>& pieces,
                                                         int64_t window);

}  // namespace sluice::layers
