// A pass: the micro-batches of a pipeline that run as one event because their lanes share parameters.
#pragma once

#include <vector>

#include "strategy/step_plan.h"

namespace sluice::strategy {

// A pass covers the smallest run of lanes that is closed under share groups and micro-batches, with at most
// one micro-batch on each lane. A lane without one still takes part in all-gathers and reduce-scatters, with
// no gradient of its own. With an FSDP degree of 1 every micro-batch is a pass of its own.
struct Pass {
  int first_lane = 0;
  int lanes = 1;
  std::vector<int> micro_batches;  // indices in PipelinePlan::micro_batches, ascending by lane
  MemoryPolicy memory;             // shared by all micro-batches of the pass

  int end_lane() const { return first_lane + lanes; }
  bool covers(int lane) const { return first_lane <= lane && lane < end_lane(); }
  bool operator==(const Pass&) const = default;
};

// The micro-batch of a pass on a lane, as an index in PipelinePlan::micro_batches; -1: none lies there.
int micro_batch_on(const PipelinePlan& plan, const Pass& pass, int lane);
// Tokens of the pass on a lane; 0 without a micro-batch there.
int64_t tokens_on(const PipelinePlan& plan, const Pass& pass, int lane);
// Tokens of the pass on its fullest lane.
int64_t tokens_of(const PipelinePlan& plan, const Pass& pass);

// The most lanes on which one of its micro-batches exchanges heads.
int head_lanes_of(const PipelinePlan& plan, const Pass& pass);

// The passes of a pipeline in the order in which every lane runs those that cover it: the micro-batches'
// order with an FSDP degree of 1, else by PipelineMicroBatch::pass. InputError, with `name` in front, unless
// the micro-batches of a pass have lanes of their own and one memory policy, and tie its share groups
// together. Passes must be numbered from 0 without gaps, and each lane's micro-batches must stand in the
// order of their passes. No check applies to an FSDP degree of 1.
std::vector<Pass> passes(const PipelinePlan& plan, const std::string& name = "the plan");

// Sets PipelineMicroBatch::pass in the order of injection (first fit). A micro-batch joins the first pass
// that covers its lanes, is later than the passes of earlier micro-batches on them and has its memory policy;
// otherwise it opens a new last pass. With an FSDP degree of 1 it gets none.
void assign_passes(PipelinePlan& plan);

}  // namespace sluice::strategy
