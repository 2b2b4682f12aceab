// Makes the step plan of one batch: dispatches sequences to the pipelines of each candidate strategy,
// packs them into micro-batches, scores, and takes the best. A pure function of its inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "plan/planner_options.h"
#include "plan/proposal.h"
#include "plan/scheme_cost.h"
#include "plan/search.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

class Planner;

// How a planner plans a batch with its candidates, and how candidates are
// proposed. Stateless, so one object serves any number of planners and threads.
class Method {
 public:
  virtual ~Method() = default;
  // Nothing when none of the candidates that the selection allows holds the batch.
  virtual std::optional<strategy::StepPlan> plan(const Planner& planner, int64_t step,
                                                 const std::vector<strategy::Sequence>& sequences) const = 0;
  // By default, plan::propose.
  virtual base::Feasible<std::vector<Proposal>> propose(const PlannerOptions& options,
                                                        const cost::CostModel& cost) const;
  // Whether the method supports pipelines of several lanes, and FSDP degrees above 1.
  virtual bool plans_lanes() const { return true; }
  virtual bool plans_fsdp() const { return false; }
};

// Takes candidates in the order of their lower bounds and expected overheads and skips those whose
// bound cannot win. Dispatches by prices and local search, and packs for the schedule that will run.
std::shared_ptr<const Method> ours();
// The fallback if a batch has no plan otherwise: no search. Takes the first candidate without
// lanes that holds the batch. Sequences, longest first, go to the pipeline with the least work of
// those that hold them; packing is first-fit decreasing. InputError if every candidate has lanes.
std::shared_ptr<const Method> plain();

// Completes a plan's pipelines: adds the cost model's
// memory policy to micro-batches, and layers to stages.
void complete(strategy::StepPlan& plan, const cost::CostModel& cost);
// The complete plan for the packings that a search found.
strategy::StepPlan plan_of(std::vector<strategy::Sequence> sequences,
                           const std::vector<PackedPipeline>& packed, const cost::CostModel& cost);

class Planner {
 public:
  // InputError when there is no candidate, or one cannot run (validate, tp_fault, more stages than
  // layers, a TP degree without calibration), naming it.
  Planner(PlannerOptions options, cost::CostModel cost);

  const PlannerOptions& options() const { return options_; }
  // Under the first policy.
  const cost::CostModel& cost() const { return cost_; }
  // The longest sequence that some candidate holds under some policy.
  int64_t max_len_tokens() const;

  // If no candidate holds the batch, `why` names the longest sequence, the most that a
  // candidate holds and the smallest scheme that would hold it. `estimated_ns` is the longest
  // pipeline's schedule without pull, push and update. `lower_bound_ns` bounds every plan of
  // any allowed candidate (0: the method knows no bound). `candidates` lists those that hold
  // the batch, in the order looked at, with their step overheads. Under ours(), a candidate
  // excluded by its bound appears with that bound, and one given up with the end that it
  // would not beat. Micro-batches that fit under an earlier policy get it where the schedule
  // gains. Sequences with branches are placed by their lengths, with attention priced at the
  // batch's mean. The resulting plan is timed exactly, without a bound. Thread-safe.
  base::Feasible<strategy::StepPlan> try_plan(int64_t step,
                                              const std::vector<strategy::Sequence>& sequences) const;
  // The same, with InfeasibleError if no candidate holds the batch.
  strategy::StepPlan plan(int64_t step, const std::vector<strategy::Sequence>& sequences) const {
    return try_plan(step, sequences).or_throw();
  }

  // Inputs of a method: the schemes of every candidate under cost(), and
  // the candidates in the order in which the selection looks at them.
  const SchemeCosts& schemes() const { return schemes_; }
  std::vector<size_t> preference(int64_t step) const;
  // The step's time beside the schedule: of that complete plan, and a lower
  // bound for any plan under a candidate. 0 without options().step_overhead.
  int64_t step_overhead_ns(const strategy::StepPlan& plan) const {
    return options_.step_overhead ? options_.step_overhead->of_plan_ns(plan, cost_, options_.world_size) : 0;
  }
  int64_t min_step_overhead_ns(size_t candidate) const { return least_beside_ns_[candidate]; }
  // The longest sequence that the strategy, a candidate, holds under cost().
  int64_t max_len_tokens(const strategy::Strategy& strategy) const;

 private:
  // Under this planner's first policy.
  std::optional<strategy::StepPlan> plan_under_policy(int64_t step,
                                                      const std::vector<strategy::Sequence>& sequences) const;
  // Under the further policy whose step ends first by the clock, or, without a clock, the first that holds
  // the batch.
  std::optional<strategy::StepPlan> plan_under_further_policies(
      int64_t step, const std::vector<strategy::Sequence>& sequences) const;
  base::Infeasible none_of(int64_t step, const std::vector<strategy::Sequence>& sequences) const;
  base::Feasible<strategy::StepPlan> plan_branches(int64_t step,
                                                   const std::vector<strategy::Sequence>& sequences) const;

  PlannerOptions options_;
  cost::CostModel cost_;
  SchemeCosts schemes_;                   // all candidates'
  std::vector<int64_t> least_beside_ns_;  // by candidate
  std::vector<Planner> fallbacks_;        // one for each further policy
};

}  // namespace sluice::plan
