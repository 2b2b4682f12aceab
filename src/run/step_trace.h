// A step's timelines on disk: what every node of every rank took, and what was predicted.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "graph/step_graph.h"
#include "runtime/executor.h"
#include "survive/control.h"

namespace sluice::run {

// A part of a step that a graph says, as this rank ran it. Borrows all.
struct TracedAct {
  std::string name;  // "teacher"
  const graph::StepGraph& graph;
  const cost::CostModel& cost;  // which the graph was built with
  const runtime::StepTiming& timing;
};

// Collective. Rank 0 gathers all ranks' measurements and writes trace-STEP.json (measured) and
// trace-STEP-predicted.json into `directory`. Times count from each rank's own start of the step. Both count
// "memory": what tensors hold behind each node, where that is measured, and what is predicted. Acts lie one behind
// the other, each from where the slowest rank ended the one before; where there are several, labels begin with
// their names. Both files name the epoch where it is not the first. REQUIRES: an act at least, all of one step.
void write_step_trace(survive::Control& control, const std::vector<TracedAct>& acts,
                      const std::filesystem::path& directory, int64_t epoch);

}  // namespace sluice::run
