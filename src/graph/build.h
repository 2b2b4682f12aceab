// Builds a verified step graph from a step plan, by named passes.
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
  // Passes to leave out: "layer-parts" (cuts the first forward and last backward by rounds), "tail-weights"
  // (runs a later stage's last weight gradients by rounds), "verify". InputError for other names.
  std::set<std::string> disabled_passes;
  // Keeps link plans between steps; nullptr: link plans are made anew.
  LinkPlans* link_plans = nullptr;
};

struct PassTime {
  std::string name;
  int64_t time_ns = 0;  // computing time of the thread
};

// Runs link -> order -> layer-parts -> tail-weights -> lower -> clock -> verify. Pipelines without
// lane parts take no part. InputError if a scheme cannot cut the model, or a micro-batch's lanes its
// heads. If the program needs more memory than a device has, `why` names rank, peak and capacity.
base::Feasible<StepGraph> try_build(const strategy::StepPlan& plan, const model::ParameterTable& table,
                                    const cost::CostModel& cost, int world_size,
                                    const BuildOptions& options = {}, std::vector<PassTime>* times = nullptr);
// The same, with InfeasibleError if the plan does not fit.
StepGraph build(const strategy::StepPlan& plan, const model::ParameterTable& table,
                const cost::CostModel& cost, int world_size, const BuildOptions& options = {},
                std::vector<PassTime>* times = nullptr);

}  // namespace sluice::graph
