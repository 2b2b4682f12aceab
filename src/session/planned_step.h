// A batch's step plan, and the program made from it, as a run gets them: also when its planner fails.
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
  std::string fallback;  // empty: the plan is the planner's; otherwise why it is not
};

// Nothing where a plan can be run, otherwise why not.
using Accept = std::function<std::optional<base::Infeasible>(const strategy::StepPlan&)>;

// The planner's plan of the batch. Where there is none, `accept` has something against it, or either makes a
// mistake of ours (std::logic_error), others are tried until one is accepted: the best of all candidates,
// where the planner was to choose among fewer; then every candidate alone, those that hold the longest
// sequences first, under the last memory policy; then those without lanes as plan::plain() does, which shares
// nothing with our own search. When all fail, says why the planner's own did, or throws its mistake; when it
// lacked room, says why the widest choice failed. A pure function: all ranks fall back alike.
base::Feasible<PlannedStep> plan_step(const plan::Planner& planner, int64_t step,
                                      const std::vector<strategy::Sequence>& sequences,
                                      const Accept& accept = {});

struct BuiltStep {
  strategy::StepPlan plan;
  graph::StepGraph graph;
  std::string fallback;  // as PlannedStep's
  std::optional<graph::StepGraph> earlier = std::nullopt;  // of an act in front of it
};

// The same with the verified step graph, which a plan must come to for being accepted, and that of an act in
// front of it; null: there is none.
base::Feasible<BuiltStep> try_build_step(const plan::Planner& planner, const model::ParameterTable& table,
                                         int64_t step, const std::vector<strategy::Sequence>& sequences,
                                         const graph::BuildOptions& options,
                                         const EarlierAct* earlier = nullptr);

// The same, where nothing else is left to try: InfeasibleError.
BuiltStep build_step(const plan::Planner& planner, const model::ParameterTable& table, int64_t step,
                     const std::vector<strategy::Sequence>& sequences, const graph::BuildOptions& options,
                     const EarlierAct* earlier = nullptr);

// Builds the steps of the longest sequences that training and evaluation meet, so that what cannot run is
// known before the run. Throws as build_step.
void try_longest(const plan::Planner& planner, const model::ParameterTable& table, const Data& data,
                 graph::LinkPlans& links, const EarlierAct* earlier = nullptr);

}  // namespace sluice::session
