// A batch's step plan, and the step graph made from it, as in a run: also if its planner fails.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/feasible.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "plan/planner.h"
#include "session/data.h"
#include "session/earlier_act.h"

namespace sluice::session {

struct PlannedStep {
  strategy::StepPlan plan;
  std::string fallback;  // empty: the plan is the planner's; otherwise the reason why it is not
};

// Nothing if the plan can be run, otherwise the reason why not.
using Accept = std::function<std::optional<base::Infeasible>(const strategy::StepPlan&)>;

// The planner's plan of the batch. If there is none, `accept` rejects it, or either makes a mistake of ours
// (std::logic_error), fallbacks are tried until one is accepted. First the best of all candidates, if the
// planner chose among fewer. Then every candidate alone under the last memory policy, those that hold the
// longest sequences first. Last those without lanes by plan::plain(), which shares no code with our own
// search. If all fail: why the planner failed, or its mistake; for lack of room, why the widest choice
// failed. A pure function: all ranks fall back alike.
base::Feasible<PlannedStep> plan_step(const plan::Planner& planner, int64_t step,
                                      const std::vector<strategy::Sequence>& sequences,
                                      const Accept& accept = {});

struct BuiltStep {
  strategy::StepPlan plan;
  graph::StepGraph graph;
  std::string fallback;  // as PlannedStep's
  std::optional<graph::StepGraph> earlier = std::nullopt;  // a trunk's act in front of it
};

// The same with the verified step graph, without which a plan is not accepted, and with the graph of
// `earlier`; null: there is no act in front.
base::Feasible<BuiltStep> try_build_step(const plan::Planner& planner, const model::ParameterTable& table,
                                         int64_t step, const std::vector<strategy::Sequence>& sequences,
                                         const graph::BuildOptions& options,
                                         const EarlierAct* earlier = nullptr);

// The same; InfeasibleError if all fallbacks fail.
BuiltStep build_step(const plan::Planner& planner, const model::ParameterTable& table, int64_t step,
                     const std::vector<strategy::Sequence>& sequences, const graph::BuildOptions& options,
                     const EarlierAct* earlier = nullptr);

// Builds steps of the longest sequences in training and evaluation, so that infeasible ones are known before
// the run. Throws as build_step.
void try_longest(const plan::Planner& planner, const model::ParameterTable& table, const Data& data,
                 graph::LinkPlans& links, const EarlierAct* earlier = nullptr);

}  // namespace sluice::session
