// An act in front of a step's own: another model's forward on the same sequences under the same plan, whose
// rows the step's head reads where they lie. A distillation's teacher is one.
#pragma once

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "strategy/step_plan.h"

namespace sluice::session {

// Borrowed; all outlive whoever plans with it.
struct EarlierAct {
  const model::ParameterTable& table;
  // The other model's; its device has what the step's model leaves while nothing of it but what ranks own is
  // there.
  const cost::CostModel& cost;
  graph::LinkPlans& link_plans;
};

// Its graph for the step's plan, proved; why there is none where the strategy cannot cut that model, or a
// rank has no room for it, or for the step beside the rows that it leaves (`cost`: the step's).
base::Feasible<graph::StepGraph> try_build_earlier(const EarlierAct& act, const graph::StepGraph& step,
                                                   const cost::CostModel& cost);

// The bytes that a rank of a last stage keeps of it while the step runs: rows of all its micro-batches, the
// output matrix once, and what divergences take of a chunk beside the logits.
int64_t kept_bytes(const EarlierAct& act, const strategy::PipelinePlan& plan, int lane,
                   const cost::MemoryModel& memory);

}  // namespace sluice::session
