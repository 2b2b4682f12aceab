// Which strategies a run may choose from.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "cost/cost_model.h"
#include "plan/planner.h"
#include "train/data.h"

namespace sluice::train {

// The configuration's strategies, parsed and checked against the number of ranks and the model. Empty for
// "auto". InputError naming the strategy and the fault.
std::vector<strategy::Strategy> configured_strategies(const config::RunConfig& config, int world_size);

// TP degrees that calibration must cover: the configured strategies', or all that "auto" may propose.
std::vector<int> tensor_parallel_degrees(const config::RunConfig& config, int world_size);

// The planner over the configured strategies, or over a proposal for "auto" judged on the first batches.
// InfeasibleError naming the longest sequence and what each candidate holds when none holds it.
plan::Planner make_planner(const config::RunConfig& config, const Data& data, const cost::CostModel& cost,
                           int world_size);

}  // namespace sluice::train
