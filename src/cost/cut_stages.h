// By which times stages are cut (model/stage_cuts.h).
#pragma once

#include <cstdint>
#include <span>

#include "cost/cost_model.h"

namespace sluice::cost {

// The options with what an operation of each kind takes, under each TP degree, of the average of sequences of
// such lengths: forward and backward, without the constants, whose number nobody knows yet. Published tables
// stay as they are: their stages hold equally many layers. REQUIRES: at least one length.
CostModel::Options cut_by_time(CostModel::Options options, std::span<const int64_t> lengths);

// The blocks of each stage of a scheme, first to last.
std::vector<int64_t> stage_layers(const CostModel& cost, const strategy::Scheme& scheme);

}  // namespace sluice::cost
