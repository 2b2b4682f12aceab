// Memory that exchanging heads adds to activations.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// Bytes that exchanging heads adds to the activations of one layer for a token of a lane, over a micro-batch
// of as many lanes that exchanges over a ring. The lane with most heads counts.
struct ExchangeBytes {
  int64_t saved = 0;  // queries, keys, values and outputs as attention takes them, and copied key heads
  int64_t recompute_input = 0;  // part of them that a recomputing backward needs
  int64_t recomputed = 0;       // recomputed besides by such a backward
  int64_t forward = 0;          // working memory
  int64_t backward = 0;         // working memory of a backward without a ring
  int64_t nested = 0;           // the same with a ring between head groups
};
// The block at `position`, in runs of so many lanes. REQUIRES: there are heads for it.
ExchangeBytes exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, int64_t position,
                             int head_lanes);
// The maximum over all blocks, field by field.
ExchangeBytes most_exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, int head_lanes);
// The same of queries that move between lanes, with their inputs and results: working memory alone.
ExchangeBytes most_moving_query_bytes(const CostModel& cost, const strategy::Scheme& scheme);
// The part that stays from forward to backward, over all `blocks`.
int64_t kept_exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, base::Interval blocks,
                            int head_lanes);

}  // namespace sluice::cost
