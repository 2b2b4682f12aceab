// An act in front of a step's own: another model's forward on the same sequences under the same plan, whose
// rows the step's head reads where they lie. A distillation's teacher is one.
#pragma once

#include <cstdint>
#include <vector>

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
  int64_t beside_bytes = 0;  // that a rank owns of all models but this one
};

// Its graph for the step's plan, proved; why there is none where the strategy cannot cut that model, or a
// rank has no room for it, or for the step beside the rows that it leaves (`cost`: the step's).
base::Feasible<graph::StepGraph> try_build_earlier(const EarlierAct& act, const graph::StepGraph& step,
                                                   const cost::CostModel& cost);

// By rank, the bytes of the rows that it leaves: of all micro-batches, on ranks of last stages.
std::vector<int64_t> row_bytes(const EarlierAct& act, const graph::StepGraph& step,
                               const cost::MemoryModel& memory);
// By rank, all bytes that are kept of it while the step runs: those rows, the output matrix once, and what
// divergences take of a chunk beside the logits.
std::vector<int64_t> kept_bytes(const EarlierAct& act, const graph::StepGraph& step,
                                const cost::MemoryModel& memory);

}  // namespace sluice::session
