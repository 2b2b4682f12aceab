// Layout of one micro-batch's tokens in the rows that a lane's layers work on.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "layers/head_exchange.h"
#include "layers/lane_recurrence.h"
#include "layers/row_transfers.h"
#include "model/model.h"
#include "ops/attention.h"
#include "strategy/pipeline_micro_batch.h"

namespace sluice::layers {

class KvCache;
struct CarriedRows;

// The rows that a lane attends with: the micro-batch's or, if heads are exchanged, its head group's.
struct AttendedRows {
  // Sequences that attend without other lanes. Pieces of one sequence are one sequence here, except through a
  // window between several lanes, where each piece is its own.
  ops::PackedSequences sequences;
  // Attention among these: branches to their prefixes on this lane; through a window, piece to piece.
  std::vector<ops::AttentionBlock> own_blocks;
  RowTransfers transfers;  // attention to other lanes' rows
};

// The sequence of each row, for sums by sequence (balance.h). Sequences that other lanes have pieces of come
// first.
struct SequenceRows {
  at::Tensor sequence_T;         // int64 [rows] on the layers' device; inert rows: one past the last
  std::vector<int64_t> lengths;  // tokens of a whole sequence, on all lanes
  int64_t shared = 0;            // number of sequences with pieces on other lanes
  std::vector<int> others;       // these lanes: members of the channel's communicator
};

// Lanes that divide the KV cache: each has its own KV blocks of every sequence, and all run the same engine
// steps (cached_lanes.h). Queries are then rows of the whole engine step, and row_T is for rows kept here.
struct CacheOfLanes {
  std::vector<int> members;  // by lane: members of the channel's communicator; empty: one lane has all
  int own = 0;
  // Rows of the engine step that each lane computes: a part, or all of them if they are few.
  std::vector<base::Interval> rows;
  int64_t engine_step_rows = 0;
  at::Tensor kept_row_T;  // int64: rows of the engine step that are kept here
  // Attention of rows to earlier ones of their own piece, as far as these are kept here.
  std::vector<ops::AttentionBlock> within;

  base::Interval own_rows() const { return rows[static_cast<size_t>(own)]; }
  bool all_compute_all() const { return own_rows().size() == engine_step_rows; }
};

// How rows of sequences that are being generated meet the cache of earlier tokens (kv_cache.h).
struct CachedRows {
  const KvCache* cache = nullptr;  // borrowed; null: no cache, pieces begin where sequences do
  at::Tensor row_T;                // int64 [tokens]: the cache row for each row's keys and values
  // Attention of rows to the cache, besides rows of the same piece.
  std::vector<ops::AttentionBlock> before;
  // All of it, for devices that read the cache by pages; empty: blocks alone.
  ops::PagedSequences paged;
  // For recurrent layers: each piece's slot, int64 [pieces], and 1 if the piece continues from the slot's
  // state, else 0.
  at::Tensor slot_P, goes_on_P;
  CacheOfLanes lanes;
};

// Attention through one of the model's windows.
struct WindowRows {
  int64_t window = 0;
  AttendedRows attended;
  std::vector<ops::AttentionBlock> before;  // as CachedRows::before
};

// Rows of an expert group in a pass (token_dispatcher.h).
struct DispatchedRows {
  std::vector<int> members;   // lanes: members of the channel's communicator
  std::vector<int64_t> rows;  // by lane
  bool keeps = true;          // whether experts' results stay until backward, as far as there is room
  bool any() const {
    return std::ranges::any_of(rows, [](int64_t of_lane) { return of_lane > 0; });
  }
};

// Pieces lie end to end without padding. At most tp - 1 inert rows follow, so that all TP ranks hold equally
// many rows. Immutable once made, except `carried`. Shared by all layers of a stage.
struct RowLayout {
  at::Tensor position_T;  // int64 [rows] on the layers' device; inert rows 0
  int64_t tokens = 0;
  int64_t rows = 0;   // tokens rounded up to a multiple of tp
  HeadsLayout heads;  // head group for shared sequences
  AttendedRows attended;
  std::vector<WindowRows> windowed;  // by window
  // If heads are exchanged: the lane's unshared sequences, whose rows follow the shared ones, as a
  // micro-batch that attends with all heads. Null: none.
  std::shared_ptr<const RowLayout> own;
  // For recurrent layers: these exchange heads of all rows, unshared ones included.
  HeadsLayout recurrent_heads;
  RecurrentRows recurrent;
  SequenceRows sequences;
  CachedRows cached;
  DispatchedRows dispatched;             // if lanes divide experts
  std::shared_ptr<CarriedRows> carried;  // null: nothing is carried yet
  int64_t longest = 0;                   // one past the largest position: the length that rotary tables need

  // Rows of attention through a window; 0: all rows. REQUIRES: one of the model's windows.
  const AttendedRows& attended_through(int64_t window) const;
  const std::vector<ops::AttentionBlock>& cached_through(int64_t window) const;
};

// How far a model's layers see, which decides what a layout contains.
struct Reach {
  std::vector<int64_t> windows;  // of attention, ascending
  bool chunked = false;          // as in model::Attention
  int64_t convolution = 0;       // width of the recurrent layers' convolution; 0: none
  AttentionMask mask = AttentionMask::kCausal;
};
Reach reach_of(const model::Model& model);

// Layout of whole sequences, each behind its prefix. REQUIRES: at least one piece, every length > 0.
RowLayout row_layout(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device,
                     const Reach& reach = {});

// The lane parts of a micro-batch of several lanes, seen from one of them.
struct LanePartSpans {
  int lane = 0;        // this lane's place in the micro-batch
  int head_lanes = 1;  // neighbouring lanes that exchange heads; divides the lanes
  int in_node = 1;     // neighbouring lanes that always lie on one node; divides them too
  strategy::Exchange exchange = strategy::Exchange::kRing;  // between lanes or head groups
  std::vector<int> members;                   // by lane of the micro-batch: members of lanes' communicator
  std::vector<std::vector<PieceSpan>> lanes;  // the lane parts, by lane of the micro-batch
};

// Layout of this lane's part; pieces as above. REQUIRES: causal cutting or, if the exchange says so,
// contiguous parts. If heads are exchanged, a lane's unshared pieces lie behind the others.
RowLayout cp_row_layout(const LanePartSpans& micro_batch, int tp, const at::Device& device,
                        const Reach& reach = {});

// The next tokens of a sequence, [begin, begin + length), in one piece; and the cache rows of the tokens
// before them and of themselves, in order.
struct CachedPiece {
  int64_t length = 0;
  int64_t begin = 0;
  std::vector<base::Interval> before;  // runs of rows, `begin` in all
  std::vector<base::Interval> own;     // `length` in all
  int64_t slot = 0;                    // slot of the sequence's states
  std::vector<int64_t> kv_blocks;      // these rows lie in, kv_block_rows each; empty: in no such blocks
};
// REQUIRES: at least one piece, every length > 0, no row of the cache twice.
RowLayout cached_row_layout(const std::vector<CachedPiece>& pieces, const KvCache& cache, int tp,
                            const at::Device& device, const Reach& reach = {}, int64_t kv_block_rows = 0);

// The same for k lanes: KV block p lies on lane p mod k as its block p ÷ k. States lie on all lanes.
struct KvBlockPiece {
  int64_t length = 0;
  int64_t begin = 0;
  std::vector<int64_t> kv_blocks;  // hold tokens [0, begin + length), kv_block_rows each
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

// `values` (one per token), then `filler` for inert rows, as int64 on `device`. For token ids, and for
// targets, which are -1 in rows that have none.
at::Tensor row_values(const std::vector<int64_t>& values, const RowLayout& layout, const at::Device& device,
                      int64_t filler = -1);

}  // namespace sluice::layers
