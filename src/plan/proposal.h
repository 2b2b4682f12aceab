// Candidate strategies for a corpus: a few strategies, chosen before a run,
// that together suit its batches best, whatever lengths a batch draws.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.h"
#include "strategy/step_plan.h"
#include "strategy/strategy.h"

namespace sluice::plan {

// The time of pull, push and update beside a step's schedule (session/step_overhead.h: by the clock).
class StepOverhead {
 public:
  virtual ~StepOverhead() = default;
  // For the step of a plan on `ranks` ranks, whose pipelines are complete (plan/planner.h).
  virtual int64_t of_plan_ns(const strategy::StepPlan& plan, const cost::CostModel& cost,
                             int ranks) const = 0;
  // A lower bound for any step under a strategy.
  virtual int64_t least_ns(const strategy::Strategy& strategy, const cost::CostModel& cost,
                           int ranks) const = 0;
};

// The range of some batches' longest sequences, in tokens; both 0 without any.
struct LongestRange {
  int64_t least = 0;
  int64_t most = 0;

  void add(int64_t tokens);
};

struct Proposal {
  strategy::Strategy strategy;
  int64_t max_len_tokens = 0;     // the longest sequence that it holds
  double frequency = 0;           // the share of sample batches that it plans best, the first of equals
  LongestRange longest;           // over the sample batches that it plans best
  int64_t mean_estimated_ns = 0;  // per step, over the sample batches that it holds; 0 without any
  // The same if gathers between nodes take the measured time (session/propose_for_both.h); 0: not known.
  int64_t mean_measured_ns = 0;
};

// The strategies alone.
std::vector<strategy::Strategy> strategies_of(const std::vector<Proposal>& proposals);

}  // namespace sluice::plan
