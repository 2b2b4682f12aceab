// Where candidate strategies and planners come from: one function for each, for training, simulation,
// commands and bindings alike, so that what is said of a run is what the run does.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/planner.h"
#include "plan/proposal.h"
#include "session/planning_task.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Of all sequences of a corpus: plan::stratified_batches, as many as every proposal sees.
std::vector<std::vector<int64_t>> sample_batches(const std::vector<int64_t>& sequence_lengths,
                                                 int64_t tokens_per_step, uint64_t seed);

// Strategies for the sample batches, under the first memory policy under which the context is held. Of
// devices that differ no two kinds lie in one pipeline (session/unequal_devices.h). InputError when
// max_strategies < 1 or max_cp < 0, or lanes are wanted of a method that plans none; throws as plan::propose.
std::vector<plan::Proposal> propose(const PlanningTask& task);

// The planner of the given strategies, or of proposed ones. With sample batches, candidates are chosen by the
// step's time: the clock says what pull, push and update add under each. InputError as check_lanes, or when a
// fixed candidate is not there, or nothing is given to propose for; throws as propose and plan::Planner.
plan::Planner make_planner(const PlanningTask& task);

// InputError when one of the candidates has lanes and the method does not know them.
void check_lanes(const std::vector<strategy::Strategy>& candidates, const plan::Method& method);

// InfeasibleError with the way out when the planner holds no sequence of so many tokens.
void require_context(const plan::Planner& planner, int64_t context_length);

// TP degrees that cut the model: the strategies', and all powers of two up to `most`.
std::vector<int> tensor_parallel_degrees(const model::Shape& shape,
                                         const std::vector<strategy::Strategy>& strategies, int most);

}  // namespace sluice::session
