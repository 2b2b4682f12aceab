// Acts in front of a step's own, such as those of a distillation's teachers: other models' forwards, one
// after the other, on the same sequences under the same plan. The step's head reads the rows that they leave.
#pragma once

#include <cstdint>
#include <span>
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

using EarlierActs = std::span<const EarlierAct>;  // in their order

// The acts' verified graphs for the step's plan. Infeasible if the strategy cannot divide a model, or if a
// rank has no room for an act beside the rows of those before it, or for the step beside all acts' rows
// (`cost`: the step's).
base::Feasible<std::vector<graph::StepGraph>> try_build_earlier(EarlierActs acts,
                                                                const graph::StepGraph& step,
                                                                const cost::CostModel& cost);

// By rank, the bytes that the acts leave on ranks of last stages: of each the rows of all micro-batches, and
// one copy of its part of the output matrix.
std::vector<int64_t> left_bytes(EarlierActs acts, const graph::StepGraph& step,
                                const cost::MemoryModel& memory);
// By rank, all bytes kept of the acts while the step runs: left_bytes(), the running micro-batch's rows of
// all TP ranks, and a divergence's working bytes for a chunk beside the logits. REQUIRES: at least one act.
std::vector<int64_t> kept_bytes(EarlierActs acts, const graph::StepGraph& step,
                                const cost::MemoryModel& memory);

// The peak of each act on its fullest rank, with all that the rank owns and the rows of the acts before.
std::vector<int64_t> peak_bytes(EarlierActs acts, std::span<const graph::StepGraph> graphs,
                                const graph::StepGraph& step, const cost::MemoryModel& memory);

}  // namespace sluice::session
