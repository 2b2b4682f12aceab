// From the sequences of one iteration to its step plan: for every candidate strategy dispatch sequences to
// pipelines, pack them into micro-batches, score, and take the best. A pure function of its inputs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "plan/published/paper_plan.h"
#include "plan/scheme_cost.h"
#include "plan/search.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

// kBest: the least estimated time, the earliest of equals. kCycle: candidate step mod count, or the next
// one that holds the batch. kFixed: always one candidate.
enum class Selection { kBest, kCycle, kFixed };

// kPaper: every candidate, by Algorithm 1 on Eq. 2 and Eq. 1 for every V; the one with the least estimate by
// Eq. 1 is taken, and timed like any plan by the schedule that will run. kOurs: candidates
// in the order of their lower bounds and expected overheads, those left out whose bound cannot win; dispatch
// by prices and local search, packing for the schedule that will run.
// kExact: the proved best of every candidate, for small batches only (plan/exact.h).
enum class Method { kPaper, kOurs, kExact };

struct PlannerOptions {
  int world_size = 1;
  std::vector<strategy::Strategy> candidates;
  Method method = Method::kOurs;
  Effort effort = Effort::kFull;  // of kOurs
  Selection selection = Selection::kBest;
  int fixed_candidate = 0;  // for kFixed
  PaperOptions paper;       // of kPaper; its stream of random numbers follows step and candidate
  // A batch is planned under the first of them under which a candidate holds it; empty: the cost model's.
  std::vector<strategy::MemoryPolicy> policies;
};

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

  // Throws base::InfeasibleError naming the longest sequence, the most that a candidate holds and the
  // smallest scheme that would hold it when none holds the batch. `estimated_ns` is the longest schedule of a
  // pipeline, without pull, push and update; `lower_bound_ns` is what no plan of any candidate that the
  // selection allows can beat (kPaper: 0, not known). `candidates` holds those that hold the batch, in the
  // order in which they were looked at; with kOurs one that its bound ruled out stands with its bound.
  // Micro-batches that fit under an earlier policy than their step's are given it where the schedule gains.
  // Thread-safe.
  strategy::StepPlan plan(int64_t step, const std::vector<strategy::Sequence>& sequences) const;

 private:
  // Under this planner's own policy.
  std::optional<strategy::StepPlan> try_plan(int64_t step,
                                             const std::vector<strategy::Sequence>& sequences) const;
  std::optional<strategy::StepPlan> plan_as_published(int64_t step,
                                                      const std::vector<strategy::Sequence>& sequences) const;
  std::optional<strategy::StepPlan> plan_exactly(int64_t step,
                                                 const std::vector<strategy::Sequence>& sequences) const;
  std::optional<strategy::StepPlan> plan_by_bounds(int64_t step,
                                                   const std::vector<strategy::Sequence>& sequences) const;
  // Candidates in the order in which the selection looks at them.
  std::vector<size_t> preference(int64_t step) const;
  int64_t max_len_tokens(const strategy::Strategy& strategy) const;
  [[noreturn]] void fail_infeasible(int64_t step, const std::vector<strategy::Sequence>& sequences) const;

  PlannerOptions options_;
  cost::CostModel cost_;
  std::map<strategy::Scheme, SchemeCost> schemes_;  // of all candidates
  std::vector<Planner> fallbacks_;                  // one for each further policy
};

}  // namespace sluice::plan
