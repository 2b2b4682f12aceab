// Candidate strategies for a corpus: before a run, a few strategies that together suit its batches best,
// whichever lengths a batch draws.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cost/cost_model.h"
#include "strategy/step_plan.h"
#include "strategy/strategy.h"

namespace sluice::plan {

// What pull, push and update add to steps beside their schedules (session/step_overhead.h: by the clock).
class StepOverhead {
 public:
  virtual ~StepOverhead() = default;
  // To the step of a plan on so many ranks, whose pipelines are complete (plan/planner.h).
  virtual int64_t of_plan_ns(const strategy::StepPlan& plan, const cost::CostModel& cost,
                             int ranks) const = 0;
  // To any step under a strategy, at least.
  virtual int64_t least_ns(const strategy::Strategy& strategy, const cost::CostModel& cost,
                           int ranks) const = 0;
};

struct ProposalOptions {
  int world_size = 1;
  int64_t context_length = 0;  // some proposed strategy holds a sequence of so many tokens
  // Lengths of sequences by batch, such as training will see; every batch counts the same
  // (plan/batch_sample.h draws them from a corpus's lengths).
  std::vector<std::vector<int64_t>> sample_batches;
  std::shared_ptr<const StepOverhead> step_overhead;  // strategies are judged by the sum; none: nothing
  int max_strategies = 8;
  int max_cp = 1;    // most lanes of a pipeline
  int max_fsdp = 1;  // most of them that share parameters
  int thoroughness =
      1;  // multiplies how many starting points are improved and how many mixes are planned with
};

// Of the longest sequences of some batches, in tokens; both 0 without any.
struct LongestRange {
  int64_t least = 0;
  int64_t most = 0;

  void add(int64_t tokens);
};

struct Proposal {
  strategy::Strategy strategy;
  int64_t max_len_tokens = 0;     // the longest sequence that it holds
  double frequency = 0;           // the share of sample batches that it plans best; of equals the first
  LongestRange longest;           // of the sample batches that it plans best
  int64_t mean_estimated_ns = 0;  // of a step, over the sample batches that it holds; 0 when it holds none
  // The same where gathers between nodes take what was measured (session/propose_for_both.h); 0: not known.
  int64_t mean_measured_ns = 0;
};

// The strategies alone.
std::vector<strategy::Strategy> strategies_of(const std::vector<Proposal>& proposals);

}  // namespace sluice::plan
