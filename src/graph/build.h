// From a step plan to a verified step graph, by named passes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "graph/draft.h"
#include "graph/step_graph.h"

namespace sluice::graph {

struct BuildOptions {
  Purpose purpose = Purpose::kTrain;
  // Names of passes to leave out: "layer-parts" (first forward and last backward by round), "tail-weights"
  // (a later stage's last weight gradients round by round), "verify". InputError for other names.
  std::set<std::string> disabled_passes;
  // Where link plans are kept between steps; nullptr: made anew.
  LinkPlans* link_plans = nullptr;
};

struct PassTime {
  std::string name;
  int64_t time_ns = 0;  // that the thread computed
};

// link -> order -> layer-parts -> tail-weights -> lower -> clock -> verify. Pipelines without lane parts
// take no part. InputError when a scheme cannot cut the model, or a micro-batch's lanes its heads. When the
// program needs more memory than a device has, why names rank, peak and capacity.
base::Feasible<StepGraph> try_build(const strategy::StepPlan& plan, const model::ParameterTable& table,
                                    const cost::CostModel& cost, int world_size,
                                    const BuildOptions& options = {}, std::vector<PassTime>* times = nullptr);
// The same, where no other plan is left to try: InfeasibleError.
StepGraph build(const strategy::StepPlan& plan, const model::ParameterTable& table,
                const cost::CostModel& cost, int world_size, const BuildOptions& options = {},
                std::vector<PassTime>* times = nullptr);

}  // namespace sluice::graph
