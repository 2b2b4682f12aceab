// An act in front of a step's own, such as a distillation's teacher: another model's forward on the same
// sequences under the same plan. The step's head reads the rows that the act leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "graph/build.h"
#include "model/head_chunk_rows.h"
#include "model/parameters.h"
#include "session/trunk_planning.h"
#include "strategy/step_plan.h"

namespace sluice::session {

// All references are borrowed and outlive all planning with the act.
struct EarlierAct {
  const model::ParameterTable& table;
  // The other model's prices. Its device has the memory that the step's model leaves while only the owned
  // parameters of that model are there.
  const cost::CostModel& cost;
  graph::LinkPlans& link_plans;
  int64_t beside_bytes = 0;  // owned by a rank, of all models but this one
  model::Divergence divergence = model::Divergence::kForwardKl;  // the loss of the step's head
};

// The act of a trunk that leaves rows, planned beside the step's model; borrows both arguments.
EarlierAct earlier_act(const TrunkPlanning& planning, graph::LinkPlans& link_plans);

// The act's verified graph for the step's plan. Infeasible if the strategy cannot divide the model, or if a
// rank has no room for the act, or for the step beside the act's rows (`cost`: the step's).
base::Feasible<graph::StepGraph> try_build_earlier(const EarlierAct& act, const graph::StepGraph& step,
                                                   const cost::CostModel& cost);

// By rank, the bytes that the act leaves on ranks of last stages: the rows of all micro-batches, and one copy
// of its part of the output matrix.
std::vector<int64_t> left_bytes(const EarlierAct& act, const graph::StepGraph& step,
                               const cost::MemoryModel& memory);
// By rank, all bytes kept of the act while the step runs: left_bytes(), the running micro-batch's rows of all
// TP ranks, and the divergence's working bytes for a chunk beside the logits.
std::vector<int64_t> kept_bytes(const EarlierAct& act, const graph::StepGraph& step,
                                const cost::MemoryModel& memory);

}  // namespace sluice::session
