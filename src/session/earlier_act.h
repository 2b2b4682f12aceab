// An act in front of a step's own: another model's forward on the same sequences under the same plan, whose
// rows the step's head reads where they lie. A distillation's teacher is one.
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

// Borrowed; all outlive whoever plans with it.
struct EarlierAct {
  const model::ParameterTable& table;
  // The other model's; its device has what the step's model leaves while nothing of it but what ranks own is
  // there.
  const cost::CostModel& cost;
  graph::LinkPlans& link_plans;
  int64_t beside_bytes = 0;  // that a rank owns of all models but this one
  model::Divergence divergence = model::Divergence::kForwardKl;  // by which the step's head learns from it
};

// Of a model that leaves rows, planned beside the step's; borrows both.
EarlierAct earlier_act(const TrunkPlanning& planning, graph::LinkPlans& link_plans);

// Its graph for the step's plan, proved; why there is none where the strategy cannot cut that model, or a
// rank has no room for it, or for the step beside the rows that it leaves (`cost`: the step's).
base::Feasible<graph::StepGraph> try_build_earlier(const EarlierAct& act, const graph::StepGraph& step,
                                                   const cost::CostModel& cost);

// By rank, the bytes that it leaves on ranks of last stages: the rows of all micro-batches, and its part of the
// output matrix once.
std::vector<int64_t> left_bytes(const EarlierAct& act, const graph::StepGraph& step,
                               const cost::MemoryModel& memory);
// By rank, all bytes that are kept of it while the step runs: those, the rows of all TP ranks of the micro-batch at
// work, and what the divergence takes of a chunk beside the logits.
std::vector<int64_t> kept_bytes(const EarlierAct& act, const graph::StepGraph& step,
                                const cost::MemoryModel& memory);

}  // namespace sluice::session
