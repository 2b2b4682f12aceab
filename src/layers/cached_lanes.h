// Attention for generation over a KV cache that several lanes divide (as in Long-VITA, Shen et al. 2025). No
// lane has to hold a long prompt alone, and each reads only its own part of the cache.
//
// Keys and values stay where they are. Every lane gets all queries of the engine step and attends to its part
// of the cache. The lane of a query merges all lanes' outputs by log-sum-exp, in the order of lanes.
#pragma once

#include "layers/kv_cache.h"
#include "layers/lane_channel.h"
#include "layers/row_layout.h"
#include "ops/attention.h"

namespace sluice::layers {

// Collective over the lanes, each with its own rows of the engine step (CacheOfLanes::rows). Writes the keys
// and values that stay on this lane into the cache first. Memory besides the result: the step's queries, keys
// and values, and its outputs twice in lse's type.
ops::AttentionResult attend_over_lanes(LaneChannel& channel, const RowLayout& layout,
                                       const ops::AttentionInput& input, const CachedKeys& cached);

// Rows `row_R` (ascending) of the engine step, on all lanes. `x_TH`: the rows that this lane computed.
// Collective over the lanes.
at::Tensor rows_of_engine_step(LaneChannel& channel, const CacheOfLanes& lanes, const at::Tensor& x_TH,
                               const std::vector<int64_t>& row_R);

}  // namespace sluice::layers
