// What exchanging heads adds to activations.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// What exchanging heads adds to the activation bytes of one layer, a token of a lane, on the lane that has
// most heads: beside a micro-batch of as many lanes that exchanges over a ring.
struct ExchangeBytes {
  int64_t saved = 0;  // queries, keys, values and outputs as attention takes them, and copied key heads
  int64_t recompute_input = 0;  // of these, what a backward that recomputes the rest needs
  int64_t recomputed = 0;       // what such a backward has made again besides
  int64_t forward = 0;          // at work
  int64_t backward = 0;         // at work, of a backward without a ring
  int64_t nested = 0;           // at work, of one with a ring between runs
};
// The block at `position`, in runs of so many lanes. REQUIRES: there are heads for it.
ExchangeBytes exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, int64_t position,
                             int head_lanes);
// The most of any block, number by number.
ExchangeBytes most_exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, int head_lanes);
// And that of queries that travel, with what they need and make: at work alone.
ExchangeBytes most_moving_query_bytes(const CostModel& cost, const strategy::Scheme& scheme);
// Of these, what stays of the blocks from forward to backward.
int64_t kept_exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, base::Interval blocks,
                            int head_lanes);

}  // namespace sluice::cost
