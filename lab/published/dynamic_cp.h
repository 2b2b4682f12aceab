// Dynamic context parallelism as in Megatron-LM, on one pipeline of many lanes: a reference for the lanes of
// plan/strip.h.
#pragma once

#include <cstdint>
#include <span>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "strategy/step_plan.h"

namespace sluice::published {

struct DynamicCpOptions {
  strategy::Scheme scheme;
  int64_t lane_tokens = 0;  // C; 0: as many as memory holds
  int slack_percent = 5;
};

// Rounds of groups of lanes, the longest sequences first. A sequence of s tokens takes 2^⌈log2(s ÷ C)⌉ lanes
// and costs s² ÷ cp. It goes to a new group of free lanes; if too few are free, to the group of its size with
// the least cost; if there is none, to the next round. Once a sequence with fewer lanes than the round's
// first has come, the round closes when no lane is free and the groups' costs lie within the slack of the
// largest. Otherwise, if no lane is free, the costliest group gives its last sequence back, repeatedly, as
// long as that narrows the spread. While lanes are free, the group with the fewest lanes (of equals, the
// costliest) doubles. A test compares the rounds with the released BalancedCPScheduler (megatron-core
// 0.16.1); they differ where it deals sequences out in buckets.
//
// Sequences of a group share micro-batches of C tokens a lane in their order. Groups lie side by side, the
// widest first. Rounds follow each other on every lane without the barrier of real rounds. Timed by the
// schedule that will run. Infeasible if there are too few lanes, also for the next power of two.
base::Feasible<strategy::StepPlan> dynamic_cp_plan(const DynamicCpOptions& options,
                                                   std::span<const int64_t> lengths,
                                                   const cost::CostModel& cost, int world_size);

}  // namespace sluice::published
