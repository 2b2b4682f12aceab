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
  std::string fallback;                        // as PlannedStep's
  std::vector<graph::StepGraph> earlier = {};  // of the acts in front of it, in their order
};

// The same with the verified step graph, without which a plan is not accepted, and with the graphs of
// `earlier`, the acts in front.
base::Feasible<BuiltStep> try_build_step(const plan::Planner& planner, const model::ParameterTable& table,
                                         int64_t step, const std::vector<strategy::Sequence>& sequences,
                                         const graph::BuildOptions& options, EarlierActs earlier = {});

// The same; InfeasibleError if all fallbacks fail.
BuiltStep build_step(const plan::Planner& planner, const model::ParameterTable& table, int64_t step,
                     const std::vector<strategy::Sequence>& sequences, const graph::BuildOptions& options,
                     EarlierActs earlier = {});

// Builds steps of the longest sequences in training and evaluation, so that infeasible ones are known before
// the run. Throws as build_step.
void try_longest(const plan::Planner& planner, const model::ParameterTable& table, const Data& data,
                 graph::LinkPlans& links, EarlierActs earlier = {});

}  // namespace sluice::session
