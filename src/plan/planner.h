// From the sequences of one iteration to its step plan: for every candidate strategy dispatch sequences to
// pipelines, pack them into micro-batches, score, and take the best. A pure function of its inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

enum class Selection { kBest, kCycle, kFixed };

struct PlannerOptions {
  int world_size = 1;
  std::vector<strategy::Strategy> candidates;
  Selection selection = Selection::kBest;
  int fixed_candidate = 0;      // for kFixed
  int dispatch_trials = 100;    // Algorithm 1's random trials
  uint64_t seed = 1;
};

class Planner {
 public:
  // InputError when a candidate cannot run (validate, tp_fault, more stages than layers), naming it.
  Planner(PlannerOptions options, cost::CostModel cost);

  const PlannerOptions& options() const { return options_; }
  const cost::CostModel& cost() const { return cost_; }
  // The longest sequence that some candidate holds.
  int64_t max_len_tokens() const;

  // Throws base::InfeasibleError naming the longest sequence, what each candidate holds and the way out when
  // none holds the batch. Thread-safe.
  strategy::StepPlan plan(int64_t step, const std::vector<strategy::Sequence>& sequences) const;

 private:
  PlannerOptions options_;
  cost::CostModel cost_;
};

}  // namespace sluice::plan
