// Where the tokens of one micro-batch lie in the rows that a lane's layers work on.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "layers/head_exchange.h"
#include "layers/lane_recurrence.h"
#include "layers/row_transfers.h"
#include "model/shape.h"
#include "ops/attention.h"
#include "strategy/pipeline_micro_batch.h"

namespace sluice::layers {

class KvCache;
struct CarriedRows;

// The rows that a lane attends with: the micro-batch's, or where heads are exchanged those of its head group.
struct AttendedRows {
  // What attends without other lanes: a sequence's pieces are one; through a window between several lanes
  // each is one.
  ops::PackedSequences sequences;
  // What these see of each other: branches of the lane's pieces of their prefixes, pieces through a window.
  std::vector<ops::AttentionBlock> own_blocks;
  RowTransfers transfers;  // how they meet other lanes'
};

// Which sequence each row is of, for what is counted by sequence (balance.h). Those that other lanes have
// pieces of come first.
struct SequenceRows {
  at::Tensor sequence_T;         // int64 [rows] on the layers' device; inert rows: one past the last
  std::vector<int64_t> lengths;  // tokens of a whole sequence, wherever they lie
  int64_t shared = 0;            // how many other lanes have pieces of
  std::vector<int> others;       // these lanes, as members of the channel's communicator
};

// Lanes that have the cache between them, each its pages of every text, and go through the same passes
// (cached_lanes.h). Blocks' queries are then rows of the whole pass, and row_T is of those that stay here.
struct CacheOfLanes {
  std::vector<int> members;  // of the channel's communicator, by lane; none: one lane has it all
  int own = 0;
  // The pass's rows that each lane computes: parts of them, or where they are few all of them.
  std::vector<base::Interval> rows;
  int64_t engine_step_rows = 0;
  at::Tensor kept_row_T;  // int64: which of the pass's rows stay here
  // What rows see of those of their own piece, as far as these stay here and stand before them.
  std::vector<ops::AttentionBlock> within;

  base::Interval own_rows() const { return rows[static_cast<size_t>(own)]; }
  bool all_compute_all() const { return own_rows().size() == engine_step_rows; }
};

// Where the rows of texts that are being generated meet what stays of those before them (kv_cache.h).
struct CachedRows {
  const KvCache* cache = nullptr;  // borrowed; null: nothing stays, and pieces begin where sequences do
  at::Tensor row_T;                // int64 [tokens]: the cache's row that each row's keys and values go to
  // Which rows see which of the cache's, beside those of the same piece; and through the model's window.
  std::vector<ops::AttentionBlock> before;
  std::vector<ops::AttentionBlock> before_in_window;
  // Of recurrent layers: each piece's slot, int64 [pieces]; and 1 where it goes on from what that has, else
  // 0.
  at::Tensor slot_P, goes_on_P;
  CacheOfLanes lanes;
};

// What an expert group has of a pass (token_dispatcher.h).
struct DispatchedRows {
  std::vector<int> members;   // the lanes, as members of the channel's communicator
  std::vector<int64_t> rows;  // of each lane
  bool keeps = true;          // what experts make of them until the backward, as far as there is room
  bool any() const {
    return std::ranges::any_of(rows, [](int64_t of_lane) { return of_lane > 0; });
  }
};

// Pieces lie end to end without padding; at most tp - 1 inert rows follow, so that every TP rank holds as
// many rows. Immutable once made, but for what is carried; shared by all layers of a stage.
struct RowLayout {
  at::Tensor position_T;  // int64 [rows] on the layers' device; inert rows 0
  int64_t tokens = 0;
  int64_t rows = 0;   // tokens rounded up to a multiple of tp
  HeadsLayout heads;  // of what lanes share
  AttendedRows attended;
  AttendedRows windowed;  // the same where attention has the model's window
  // Where heads are exchanged, the sequences that are the lane's alone, behind what it shares: a micro-batch
  // that attends with all heads. Null: there are none.
  std::shared_ptr<const RowLayout> own;
  // Where some of the model's layers are recurrent; heads of all rows are exchanged there, own ones too.
  HeadsLayout recurrent_heads;
  RecurrentRows recurrent;
  SequenceRows sequences;
  CachedRows cached;
  DispatchedRows dispatched;             // where lanes divide experts between them
  std::shared_ptr<CarriedRows> carried;  // null: nothing yet
  int64_t longest = 0;                   // one past the largest position: rotary tables must reach so far
};

// How far a model's layers see, which is what layouts are made for.
struct Reach {
  int64_t window = 0;       // of attention that has one; 0: there is none
  bool chunked = false;     // as model::Attention
  int64_t convolution = 0;  // of recurrent layers, its width; 0: there are none
  AttentionMask mask = AttentionMask::kCausal;
};
Reach reach_of(const model::Shape& shape);

// Of whole sequences, which follow their prefixes. REQUIRES: at least one piece, every length > 0.
RowLayout row_layout(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device,
                     const Reach& reach = {});

// The lane parts of a micro-batch of several lanes, seen from one of them.
struct LanePartSpans {
  int lane = 0;        // this lane's place in the micro-batch
  int head_lanes = 1;  // neighbouring lanes that exchange heads; divides the lanes
  int in_node = 1;     // neighbouring lanes that always lie on one node; divides them too
  strategy::Exchange exchange = strategy::Exchange::kRing;  // between lanes or head groups
  std::vector<int> members;                   // of the lanes' communicator, by lane of the micro-batch
  std::vector<std::vector<PieceSpan>> lanes;  // the lane parts, by lane of the micro-batch
};

// Of that lane; likewise. REQUIRES: causal cutting or, where the exchange says so, contiguous parts; where
// heads are exchanged pieces that are a lane's own lie behind the others.
RowLayout cp_row_layout(const LanePartSpans& micro_batch, int tp, const at::Device& device,
                        const Reach& reach = {});

// A text's next tokens, [begin, begin + length), in one piece; and the cache's rows of those before and of
// themselves, in order.
struct CachedPiece {
  int64_t length = 0;
  int64_t begin = 0;
  std::vector<base::Interval> before;  // runs of rows, `begin` in all
  std::vector<base::Interval> own;     // `length` in all
  int64_t slot = 0;                    // of the text's states
};
// REQUIRES: at least one piece, every length > 0, no row of the cache twice.
RowLayout cached_row_layout(const std::vector<CachedPiece>& pieces, const KvCache& cache, int tp,
                            const at::Device& device, const Reach& reach = {});

// The same of lanes. Page p of a text's lies on lane p mod k, there as page p ÷ k; states lie on all.
struct KvBlockPiece {
  int64_t length = 0;
  int64_t begin = 0;
  std::vector<int64_t> kv_blocks;  // of its tokens [0, begin + length), so many rows each
  int64_t slot = 0;
};
struct CacheLanes {
  std::vector<int> members;
  int own = 0;
  int64_t kv_block_rows = 1;
};
// REQUIRES: two lanes or more.
RowLayout kv_block_row_layout(const std::vector<KvBlockPiece>& pieces, const CacheLanes& lanes,
                              const KvCache& cache, int tp, const at::Device& device,
                              const Reach& reach = {});

// `values`, one a token, followed by `filler` for the inert rows, on `device`: token ids and targets as
// int64, with -1 for rows that have none.
at::Tensor row_values(const std::vector<int64_t>& values, const RowLayout& layout, const at::Device& device,
                      int64_t filler = -1);

}  // namespace sluice::layers
