// From a step plan to a verified step graph, by named passes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "graph/step_graph.h"

namespace sluice::graph {

enum class Purpose { kTrain, kEvaluate };  // evaluation: pulls, forwards, scalars

struct BuildOptions {
  Purpose purpose = Purpose::kTrain;
  // Names of passes to leave out: "layer-parts" (first forward and last backward by round), "tail-weights"
  // (a later stage's last weight gradients layer by layer), "verify".
  std::set<std::string> disabled_passes;
};

struct PassTime {
  std::string name;
  int64_t time_ns = 0;
};

// lower -> layer-parts -> tail-weights -> clock -> verify. InputError for lanes (cp > 1) until rings are
// executed: the caller refuses them earlier; lowering itself knows lanes and rings.
StepGraph build(const strategy::StepPlan& plan, const model::ParameterTable& table,
                const cost::CostModel& cost, int world_size, const BuildOptions& options = {},
                std::vector<PassTime>* times = nullptr);

}  // namespace sluice::graph
