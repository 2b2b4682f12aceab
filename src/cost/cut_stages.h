// Times by which stages are cut (model/stage_cuts.h).
#pragma once

#include <cstdint>
#include <span>

#include "cost/cost_model.h"

namespace sluice::cost {

// The options with cut_times: the time of each kind's operation under each TP degree, forward and backward,
// for the average of sequences of `lengths`. Constants are left out: the number of micro-batches is unknown.
// Published tables stay as they are: their stages hold equally many layers. REQUIRES: at least one length.
CostModel::Options cut_by_time(CostModel::Options options, std::span<const int64_t> lengths);

// The number of blocks on each stage of a scheme, first to last.
std::vector<int64_t> stage_layers(const CostModel& cost, const strategy::Scheme& scheme);

}  // namespace sluice::cost
