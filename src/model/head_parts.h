// Attention heads cut over lanes that exchange them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "model/model.h"

namespace sluice::model {

class Kind;

// One TP rank's heads, which its lanes can exchange.
struct HeadCounts {
  int64_t queries = 0;
  int64_t keys = 0;  // divides queries
};
// REQUIRES: tp cuts the model (tp_fault). A TP rank has at least one key head.
HeadCounts head_counts(const Model& model, int tp);

// A kind's attention heads on one TP rank, and their width: kinds of one model may differ.
struct AttendingHeads {
  HeadCounts counts;
  int64_t width = 0;
};
// For a kind without attention of its own, the model's heads.
AttendingHeads attending_heads(const Model& model, const Kind& kind, int tp);

// The same for generation: with latent attention all queries share one narrow head, from which keys and
// values are computed.
AttendingHeads decoding_heads(const Model& model, const Kind& kind, int tp);

// The most lanes that can exchange heads: each needs a head of every layer, in recurrent layers a value head.
int64_t most_head_lanes(const Model& model, int tp);

// The number of messages in which the columns of a recurrence's state go from piece to piece: one travels
// while the next is made.
inline constexpr int64_t kStateBlocks = 4;

// One lane's heads among several: its even part of the query heads, and every key head that one of these
// queries needs. Several lanes have the same key head if parts end inside a group of queries, or if there are
// more lanes than key heads.
struct HeadPart {
  base::Interval queries;
  base::Interval keys;
};
// REQUIRES: 0 <= lane < lanes.
HeadPart head_part(const HeadCounts& heads, int lanes, int lane);
// The most query heads and the most key heads of any lane.
HeadCounts most_heads(const HeadCounts& heads, int lanes);

// A part's heads as at most three runs in which every key head serves equally many queries, as kernels
// require. Counted from the part's first heads.
std::vector<HeadPart> uniform_runs(const HeadCounts& heads, const HeadPart& part);

}  // namespace sluice::model
