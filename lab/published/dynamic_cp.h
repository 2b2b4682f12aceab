// Dynamic context parallelism in the manner of Megatron-LM, on one pipeline of many lanes: a reference that
// the lanes of plan/strip.h are compared with.
#pragma once

#include <cstdint>
#include <span>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "strategy/step_plan.h"

namespace sluice::published {

struct DynamicCpOptions {
  strategy::Scheme scheme;
  int64_t lane_tokens = 0;  // C; 0: what memory holds
  int slack_percent = 5;
};

// Rounds of groups of lanes, the longest sequences first. A sequence of s tokens takes 2^⌈log2(s ÷ C)⌉ lanes
// and costs s² ÷ cp. It goes to a new group of free lanes or, when too few are free, to the group of its size
// with the least cost; when there is none it waits for the next round. Once a sequence of fewer lanes than
// the round's first has come, the round closes as soon as no lane is free and the groups' costs lie within
// the slack of the largest. Where they do not, and no lane is free, the costliest group's sequence that came
// last goes back, again and again, as long as that narrows their spread; and while lanes are free the group
// with the fewest lanes (of equals, the costliest) doubles. A test holds the rounds to those of the released
// BalancedCPScheduler (megatron-core 0.16.1), which differ where it deals sequences out in buckets.
//
// Sequences of a group share micro-batches of C tokens a lane in their order. Groups lie side by side, the
// widest first; rounds follow each other on every lane without a barrier, which real ones would need. Timed
// by the schedule that will run. Infeasible where LaneReference lacks lanes, or the next power of two does.
base::Feasible<strategy::StepPlan> dynamic_cp_plan(const DynamicCpOptions& options,
                                                   std::span<const int64_t> lengths,
                                                   const cost::CostModel& cost, int world_size);

}  // namespace sluice::published
