// One lane's part in a schedule of travelling rows (strategy/row_schedule.h), in terms of the rows of its
// micro-batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/interval.h"
#include "ops/attention.h"
#include "strategy/row_schedule.h"

namespace sluice::layers {

// A piece of one sequence, as layers see it.
struct PieceSpan {
  int64_t length = 0;  // tokens
  int64_t begin = 0;   // position of the first token in its sequence
  int shared = -1;     // index of its sequence among the ring's; -1: a whole sequence
  // A prefix and its branches are one family. A branch attends to its whole prefix and to itself; its
  // positions continue the prefix's. -1: not in a family.
  int family = -1;
  bool branch = false;
  // For attention by chunks of positions: the piece's chunk of its sequence; -1: chunks don't count.
  int64_t chunk = -1;

  // Whether its tokens attend to the other piece's, as far as these stand before them.
  bool sees(const PieceSpan& other) const {
    if (chunk != other.chunk) return false;
    if (branch && !other.branch && family == other.family) return true;
    return shared >= 0 && shared == other.shared;
  }
};

// Tokens of its sequence that a token attends to, as far as a window reaches: earlier ones, or all.
enum class AttentionMask : uint8_t { kCausal, kFull };

// The tied micro-batches of lanes that share sequences, seen from one of these lanes.
struct RingSpans {
  int lane = 0;                               // this lane's place among them
  std::vector<int> members;                   // by lane: members of the lanes' communicator
  std::vector<std::vector<PieceSpan>> lanes;  // the micro-batches, by lane
  AttentionMask mask = AttentionMask::kCausal;
};

// Travelling rows: a lane's shared rows, those of its pieces of shared sequences, numbered end to end.
struct RowTransfers {
  using Rows = strategy::RowSchedule::Rows;

  struct Transfer {
    bool leaves = false;  // else arrives
    Rows rows = Rows::kKeys;
    int of = 0;  // the lane whose rows they are
    int member = -1;
    int due = 0;                                // step in which it has arrived
    bool slow = false;                          // takes longer than a step
    int64_t count = 0;                          // rows
    bool own = false;                           // they are this lane's own
    std::vector<base::Interval> own_rows = {};  // their intervals in the micro-batch
  };
  // Attention between lanes, computed on this one: its queries with another's keys, or another's queries with
  // its keys. Blocks number the other's rows as they lie here, and own rows as in the micro-batch.
  struct RemoteAttention {
    Rows others = Rows::kKeys;
    int of = 0;
    int64_t count = 0;  // rows of the other lane
    std::vector<ops::AttentionBlock> blocks;
  };
  struct Step {
    std::vector<Transfer> hops;
    std::optional<RemoteAttention> remote_attention;
    std::vector<Transfer> returns;
    // Others' rows that this lane no longer needs after this step.
    std::vector<std::pair<Rows, int>> done = {};
  };

  int lanes = 1;  // 1: nothing travels
  int lane = 0;
  std::vector<Step> steps;

  // Whether other lanes' queries attend to keys on this lane.
  bool lends_keys() const;
};

// REQUIRES: pieces of a sequence ascend in every micro-batch and overlap none of another lane. If queries of
// a lane see anything of another lane's sequence, all of them see the same of it. Causal cutting ensures
// this, and so do contiguous parts for causal attention. Pieces of a prefix lie end to end, and so do those
// of its branches.
RowTransfers row_transfers(const RingSpans& ring, const strategy::RowSchedule& schedule);

// Transfers through a window. A lane's tokens see at most a window in front of each of its pieces (with
// AttentionMask::kFull also behind it). These rows alone travel, straight from their lane, and once even if
// several pieces see them. In each further step the sending lane lies further behind. Steps in which no lane
// sees anything are left out for all, so that two lanes exchange in one order. REQUIRES: window > 0; pieces
// as above, cut in any way.
RowTransfers window_row_transfers(const RingSpans& ring, int64_t width);

// Attention between a micro-batch's pieces through a window; no pieces are joined.
std::vector<ops::AttentionBlock> blocks_in_window(const std::vector<PieceSpan>& pieces, int64_t window,
                                                  AttentionMask mask = AttentionMask::kCausal);

// Attention of a micro-batch's branches to its own pieces of their prefixes.
std::vector<ops::AttentionBlock> prefix_blocks(const std::vector<PieceSpan>& pieces);
std::vector<ops::AttentionBlock> prefix_blocks_in_window(const std::vector<PieceSpan>& pieces,
                                                         int64_t window);

}  // namespace sluice::layers
