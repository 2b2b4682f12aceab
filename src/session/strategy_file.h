// Strategies as users name them: by their text, or by a file that holds some.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cost/cost_model.h"
#include "plan/planner_options.h"
#include "strategy/cluster.h"
#include "strategy/strategy.h"

namespace sluice::session {

// All strategies in `given`, in order. Each entry is a strategies.json, a file with one strategy a line ('#'
// begins a comment), or a strategy's text. InputError as the functions below, or if a file is missing.
std::vector<strategy::Strategy> read_strategies(const std::vector<std::string>& given, int world_size);

// The strategies of a strategies.json, and of a file with one a line; messages use `name`. InputError as
// strategy::parse_strategy, with `name` and the place in front, or if there is no strategy.
std::vector<strategy::Strategy> strategies_from_json(const base::Json& json, const std::string& name,
                                                     int world_size);
std::vector<strategy::Strategy> strategies_from_text(const std::string& bytes, const std::string& name,
                                                     int world_size);

// The number of ranks that all strategies in `given` need; 0 if there is none. InputError as
// read_strategies.
int ranks_needed(const std::vector<std::string>& given);

// strategies.json ("sluice.strategies/1", docs/formats.md) of proposals with these options on devices of the
// cluster; `inputs` are what the options were made from, its context_length among them.
base::Json strategies_to_json(const std::vector<plan::Proposal>& proposals,
                              const plan::PlannerOptions& options, const cost::CostModel& cost,
                              const strategy::Cluster& cluster, base::Json inputs);

}  // namespace sluice::session
