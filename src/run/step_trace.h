// A step's timelines on disk: what every node of every rank took, and what was predicted.
#pragma once

#include <filesystem>

#include "cost/cost_model.h"
#include "graph/step_graph.h"
#include "runtime/executor.h"
#include "survive/control.h"

namespace sluice::run {

// Collective. Rank 0 gathers all ranks' measurements and writes trace-STEP.json (measured) and
// trace-STEP-predicted.json into `directory`. Times count from each rank's own start of the step. Both count
// "memory": what tensors hold behind each node, where that is measured, and what is predicted by `cost`,
// which the graph was built with. Both name the epoch where it is not the first.
void write_step_trace(survive::Control& control, const graph::StepGraph& graph, const cost::CostModel& cost,
                      const runtime::StepTiming& timing, const std::filesystem::path& directory,
                      int64_t epoch);

}  // namespace sluice::run
