// From the sequences of one iteration to its step plan: for every candidate strategy dispatch sequences to
// pipelines, pack them into micro-batches, score, and take the best. A pure function of its inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "plan/proposal.h"
#include "plan/scheme_cost.h"
#include "plan/search.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

// kBest: the least estimated time, the earliest of equals. kCycle: candidate step mod count, or the next
// one that holds the batch. kFixed: always one candidate.
enum class Selection { kBest, kCycle, kFixed };

class Planner;

// How a planner plans a batch with its candidates, and how these are found. Stateless, so one serves any
// number of planners and threads.
class Method {
 public:
  virtual ~Method() = default;
  // Nothing when none of the candidates that the selection allows holds the batch.
  virtual std::optional<strategy::StepPlan> plan(const Planner& planner, int64_t step,
                                                 const std::vector<strategy::Sequence>& sequences) const = 0;
  // By default as plan::propose.
  virtual base::Feasible<std::vector<Proposal>> propose(const ProposalOptions& options,
                                                        const cost::CostModel& cost) const;
  // Whether it knows pipelines of several lanes, and how lanes that share parameters run.
  virtual bool plans_lanes() const { return true; }
  virtual bool plans_fsdp() const { return false; }
};

// Candidates in the order of their lower bounds and expected overheads, those left out whose bound cannot
// win; dispatch by prices and local search, packing for the schedule that will run.
std::shared_ptr<const Method> ours();
// What serves where those fail, without any search: the first candidate without lanes that holds the batch;
// its sequences, the longest first, each to the pipeline with the least work of those that hold it, packed
// first-fit decreasing. InputError where no candidate is without lanes.
std::shared_ptr<const Method> plain();

struct PlannerOptions {
  int world_size = 1;
  std::vector<strategy::Strategy> candidates;
  std::shared_ptr<const StepOverhead> step_overhead;  // ours() chooses by the sum; none: nothing
  std::shared_ptr<const Method> method = ours();
  Effort effort = Effort::kFull;  // of ours()
  Seeds seeds;                    // of ours()
  Selection selection = Selection::kBest;
  int fixed_candidate = 0;                // for kFixed
  std::vector<strategy::Device> devices;  // by rank; empty: alike
  // A batch is planned under the first of them under which a candidate holds it; empty: the cost model's.
  std::vector<strategy::MemoryPolicy> policies;
};

// Gives a plan's pipelines what they have beside their micro-batches: the cost model's memory policy, and the
// layers of several stages.
void complete(strategy::StepPlan& plan, const cost::CostModel& cost);
// The complete plan of what a search packed.
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

  // When no candidate holds the batch, why names the longest sequence, the most that a candidate holds and
  // the smallest scheme that would hold it. `estimated_ns` is the longest schedule of a pipeline, without
  // pull, push and update; `lower_bound_ns` is what no plan of any candidate that the selection allows can
  // beat (0 where the method knows none). `candidates` holds those that hold the batch, in the order in which
  // they were looked at, with what is beside their schedules; with ours() one that its bound ruled out stands
  // with its bound, and one that was given up with what it would not end below. Micro-batches that fit under
  // an earlier policy than their step's are given it where the schedule gains. Sequences with branches are
  // placed by their lengths, attention priced by what the batch's see in the mean; the plan that comes of it
  // is timed for what each has, and without a bound. Thread-safe.
  base::Feasible<strategy::StepPlan> try_plan(int64_t step,
                                              const std::vector<strategy::Sequence>& sequences) const;
  // The same, where nothing else is left to try: InfeasibleError.
  strategy::StepPlan plan(int64_t step, const std::vector<strategy::Sequence>& sequences) const {
    return try_plan(step, sequences).or_throw();
  }

  // What a method plans with: every candidate's schemes under cost(), and the candidates in the order in
  // which the selection looks at them.
  const SchemeCosts& schemes() const { return schemes_; }
  std::vector<size_t> preference(int64_t step) const;
  // What lies beside the schedule of a step of that plan, which is complete; and of any under a candidate, at
  // least. 0 where nothing is to be said of it.
  int64_t step_overhead_ns(const strategy::StepPlan& plan) const {
    return options_.step_overhead ? options_.step_overhead->of_plan_ns(plan, cost_, options_.world_size) : 0;
  }
  int64_t min_step_overhead_ns(size_t candidate) const { return least_beside_ns_[candidate]; }
  // The longest sequence that the strategy, a candidate, holds under cost().
  int64_t max_len_tokens(const strategy::Strategy& strategy) const;

 private:
  // Under this planner's own policy.
  std::optional<strategy::StepPlan> plan_under_policy(int64_t step,
                                                      const std::vector<strategy::Sequence>& sequences) const;
  base::Infeasible none_of(int64_t step, const std::vector<strategy::Sequence>& sequences) const;
  base::Feasible<strategy::StepPlan> plan_branches(int64_t step,
                                                   const std::vector<strategy::Sequence>& sequences) const;

  PlannerOptions options_;
  cost::CostModel cost_;
  SchemeCosts schemes_;                   // of all candidates
  std::vector<int64_t> least_beside_ns_;  // by candidate
  std::vector<Planner> fallbacks_;        // one for each further policy
};

}  // namespace sluice::plan
