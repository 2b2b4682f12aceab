// Attention heads cut over lanes that exchange them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "model/shape.h"

namespace sluice::model {

class Kind;

// One TP rank's heads: those that its lanes can exchange.
struct HeadCounts {
  int64_t queries = 0;
  int64_t keys = 0;  // divides queries
};
// REQUIRES: tp cuts the shape (tp_fault). Key heads are not cut below one.
HeadCounts head_counts(const Shape& shape, int tp);

// The heads of one TP rank that a kind attends with, and how wide they are: kinds of one model may differ.
struct AttendingHeads {
  HeadCounts counts;
  int64_t width = 0;
};
// Of a kind without attention of its own those of the shape.
AttendingHeads attending_heads(const Shape& shape, const Kind& kind, int tp);

// How many lanes can exchange heads: each needs one of every layer's, of recurrent ones a value head.
int64_t most_head_lanes(const Shape& shape, int tp);

// Columns of a recurrence's state go from piece to piece in so many messages, so that one is on its way while
// the next is made.
inline constexpr int64_t kStateBlocks = 4;

// What one of several lanes attends with: its even part of the query heads, and every key head that one of
// them needs. Where parts end inside a group of queries, or there are more lanes than key heads, several
// lanes have the same key head.
struct HeadPart {
  base::Interval queries;
  base::Interval keys;
};
// REQUIRES: 0 <= lane < lanes.
HeadPart head_part(const HeadCounts& heads, int lanes, int lane);
// The most that any of them has of each.
HeadCounts most_heads(const HeadCounts& heads, int lanes);

// A part's heads as runs in which every key head serves as many queries, which is how kernels want them; at
// most three. Counted from the part's first heads.
std::vector<HeadPart> uniform_runs(const HeadCounts& heads, const HeadPart& part);

}  // namespace sluice::model
