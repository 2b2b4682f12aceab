// Attention of texts that are being generated where lanes have the cache between them: no lane need hold a
// long prompt (Long-VITA, Shen et al. 2025, infers so), and each reads a part of it.
//
// Keys stay where they are. Every lane gets the queries of the whole pass, attends with them to what it has,
// and gives back what it found for the rows of others, which merge it by log-sum-exp in the order of lanes.
#pragma once

#include "layers/kv_cache.h"
#include "layers/lane_channel.h"
#include "layers/row_layout.h"
#include "ops/attention.h"

namespace sluice::layers {

// All lanes call it at once, each with its own rows of the pass (CacheOfLanes::rows); puts the keys and
// values of those that stay here into the cache first. Memory beside the result: queries, keys and values of
// the pass, its outputs in lse's type twice.
ops::AttentionResult attend_over_lanes(LaneChannel& channel, const RowLayout& layout,
                                       const ops::AttentionInput& input, const CachedKeys& cached);

// Rows of the pass that the lanes computed parts of, on all of them: `row_R`, ascending, of x, whose rows are
// a lane's own.
at::Tensor rows_of_engine_step(LaneChannel& channel, const CacheOfLanes& lanes, const at::Tensor& x_TH,
                               const std::vector<int64_t>& row_R);

}  // namespace sluice::layers
