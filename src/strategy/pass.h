// A pass: the micro-batches of a pipeline that run as one event because their lanes share parameters.
#pragma once

#include <vector>

#include "strategy/step_plan.h"

namespace sluice::strategy {

// The smallest run of lanes that is closed under share groups and micro-batches, with one micro-batch or none
// on each lane. A lane without a micro-batch takes part in gathering parameters and summing gradients, with
// nothing of its own. With a share of 1 every micro-batch is a pass of its own.
struct Pass {
  int first_lane = 0;
  int lanes = 1;
  std::vector<int> micro_batches;  // indices in PipelinePlan::micro-batches, ascending by lane
  MemoryPolicy memory;             // of all of them

  int end_lane() const { return first_lane + lanes; }
  bool covers(int lane) const { return first_lane <= lane && lane < end_lane(); }
  bool operator==(const Pass&) const = default;
};

// The micro-batch of a pass on a lane, as an index in PipelinePlan::micro-batches; -1: none lies there.
int micro_batch_on(const PipelinePlan& plan, const Pass& pass, int lane);
// What a lane has of a pass; 0 where no micro-batch lies.
int64_t tokens_on(const PipelinePlan& plan, const Pass& pass, int lane);
// On its fullest lane.
int64_t tokens_of(const PipelinePlan& plan, const Pass& pass);

// In runs of how many lanes its micro-batches exchange heads, at most.
int head_lanes_of(const PipelinePlan& plan, const Pass& pass);

// The passes of a pipeline in the order in which every lane runs those that cover it: with a share of 1 that
// of the micro-batches, otherwise by Unit::pass. InputError unless the micro-batches of a pass have lanes of
// their own and one memory policy, micro-batches tie its share groups to each other, passes are numbered from
// 0 on without gaps, and each lane's micro-batches stand in the order of their passes. `name` stands in front
// of what is wrong.
std::vector<Pass> passes(const PipelinePlan& plan, const std::string& name = "the plan");

// Gives micro-batches the passes that they run in, each the first one, in the order of injection, that covers
// its lanes, is behind those of the micro-batches before it there and runs under its policy; otherwise a new
// one behind all. With a share of 1 none has one.
void assign_passes(PipelinePlan& plan);

}  // namespace sluice::strategy
