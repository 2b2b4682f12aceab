#include "plan/relax.h"

#include <algorithm>

#include "cost/memory_cost.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {

namespace {

int64_t makespan_ns(const strategy::PipelinePlan& plan, const cost::CostModel& cost, int world_size) {
  return schedule::schedule_pipeline(schedule::pipeline_load(plan, cost, world_size)).makespan_ns;
}

// Gives `first`'s policy to all micro-batches of one lane that fit under it; a ring's lanes
// differ by a token. With FSDP all micro-batches of a pass need one policy, so they keep theirs.
strategy::PipelinePlan relaxed(strategy::PipelinePlan plan, const cost::CostModel& first, int world_size) {
  if (plan.pipeline.scheme.fsdp > 1) return plan;
  const int64_t holds = cost::MemoryCost(first, plan.pipeline.scheme).max_len_tokens(world_size);
  for (strategy::PipelineMicroBatch& micro_batch : plan.micro_batches) {
    if (micro_batch.lanes == 1 && micro_batch.tokens() <= holds) micro_batch.memory = first.policy();
  }
  return plan;
}

}  // namespace

void set_policy(strategy::StepPlan& plan, const strategy::MemoryPolicy& policy) {
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) micro_batch.memory = policy;
  }
}

void relax_policies(strategy::StepPlan& plan, const cost::CostModel& first, int world_size) {
  plan.estimated_ns = 0;
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    int64_t end_ns = makespan_ns(pipeline, first, world_size);
    strategy::PipelinePlan other = relaxed(pipeline, first, world_size);
    const int64_t other_ns = makespan_ns(other, first, world_size);
    if (other_ns <= end_ns) {
      pipeline = std::move(other);
      end_ns = other_ns;
    }
    plan.estimated_ns = std::max(plan.estimated_ns, end_ns);
  }
}

}  // namespace sluice::plan
