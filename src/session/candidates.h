// Candidate strategies and planners, made by one function each for training, simulation, commands and
// bindings, so that predictions for a run match the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/planner.h"
#include "plan/proposal.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Sample batches of a corpus' sequences: plan::stratified_batches, as many as every proposal sees.
std::vector<std::vector<int64_t>> sample_batches(const std::vector<int64_t>& sequence_lengths,
                                                 int64_t tokens_per_step, uint64_t seed);

// Tells a planner's counts in words: "57 strategies compared in 1,204 planned steps". Null: nobody asks.
std::function<void(int64_t, int64_t)> told_in_words(std::function<void(const std::string& how_far)> tell);

// Proposes strategies for the sample batches, under the first memory policy that holds the context. If
// devices differ, no pipeline has two kinds (session/unequal_devices.h). InputError if max_strategies < 1 or
// max_cp < 0, or if lanes are wanted from a method that plans none; throws as plan::propose.
std::vector<plan::Proposal> propose(const plan::PlannerOptions& options, const cost::CostModel& cost);

// A planner of the given candidates, or of proposed ones. With sample batches, candidates are chosen by the
// step's time, including the clock's times of pull, push and update. InputError as check_lanes, if a fixed
// candidate does not exist, or without anything to propose for; throws as propose and plan::Planner.
plan::Planner make_planner(const plan::PlannerOptions& options, const cost::CostModel& cost);

// The sample batches by whose steps planners are compared, evenly spread: at most 8, or 3 by quick plans.
std::vector<size_t> compared_batches(const plan::PlannerOptions& options);

// The time of one batch's step by the clock, pull, push and update included; nothing if it is not held.
std::optional<int64_t> clocked_step_ns(const plan::Planner& planner, const std::vector<int64_t>& lengths,
                                       const plan::StepOverhead& beside);

// A sample batch's step: the end of its schedule, and clocked_step_ns.
struct ClockedStep {
  size_t batch = 0;
  int64_t planned_ns = 0;
  int64_t step_ns = 0;
};

// make_planner with the clocked steps of the compared batches and the sum of their times, if choosing a
// memory policy needed them and all batches are held.
struct ComparedPlanner {
  plan::Planner planner;
  std::optional<int64_t> steps_ns;
  std::vector<ClockedStep> steps = {};
};
ComparedPlanner make_compared_planner(const plan::PlannerOptions& options, const cost::CostModel& cost);

// make_compared_planner of one strategy each, made once. One thread at a time. REQUIRES: all calls have the
// same costs, and options that differ in nothing but the candidates.
class ComparedPlanners {
 public:
  const ComparedPlanner& of(const strategy::Strategy& strategy, plan::PlannerOptions options,
                            const cost::CostModel& cost);

 private:
  std::vector<std::pair<strategy::Strategy, std::unique_ptr<const ComparedPlanner>>> known_;
};

// InputError if one of the candidates has lanes and the method cannot plan lanes.
void check_lanes(const std::vector<strategy::Strategy>& candidates, const plan::Method& method);

// InfeasibleError with a way out if the planner holds no sequence of so many tokens.
void require_context(const plan::Planner& planner, int64_t context_length);

// The TP degrees that divide the model: the strategies', and all powers of two up to `most`.
std::vector<int> tensor_parallel_degrees(const model::Model& model,
                                         const std::vector<strategy::Strategy>& strategies, int most);

}  // namespace sluice::session
