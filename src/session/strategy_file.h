// Strategies as users name them: by their text, or by a file that holds some.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "plan/proposal.h"
#include "session/planning_task.h"
#include "strategy/cluster.h"
#include "strategy/strategy.h"

namespace sluice::session {

// All strategies behind `given`, in order. Each entry is a strategies.json, a file with one strategy a line
// ('#' begins a comment), or a strategy's text. InputError as the functions below, or when a file is absent.
std::vector<strategy::Strategy> read_strategies(const std::vector<std::string>& given, int world_size);

// The strategies of a strategies.json, and of a file with one a line; `name` stands in messages. InputError
// as strategy::parse_strategy, with `name` and the place in front, or when there is none.
std::vector<strategy::Strategy> strategies_from_json(const base::Json& json, const std::string& name,
                                                     int world_size);
std::vector<strategy::Strategy> strategies_from_text(const std::string& bytes, const std::string& name,
                                                     int world_size);

// How many ranks a world must have for all strategies `given`; 0 when there is none. InputError as
// read_strategies.
int ranks_needed(const std::vector<std::string>& given);

// strategies.json ("sluice.strategies/1", docs/formats.md) of the task's proposals on devices of the cluster;
// `inputs` are what the task was made from, its context_length among them.
base::Json strategies_to_json(const std::vector<plan::Proposal>& proposals, const PlanningTask& task,
                              const strategy::Cluster& cluster, base::Json inputs);

}  // namespace sluice::session
