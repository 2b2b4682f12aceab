// Writes a step's timelines to disk: the measured time of every node of every rank, and the predicted one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "graph/step_graph.h"
#include "runtime/executor.h"
#include "survive/control.h"

namespace sluice::run {

// A part of a step with its own graph, as this rank ran it. Borrows all of its members.
struct TracedAct {
  std::string name;  // "teacher", "critic"
  const graph::StepGraph& graph;
  const cost::CostModel& cost;  // the graph was built with it
  const runtime::StepTiming& timing;
};

// Collective. Rank 0 gathers all ranks' measurements and writes trace-STEP.json (measured) and
// trace-STEP-predicted.json into `directory`. Times count from each rank's own start of the step. Both count
// "memory": the bytes of tensors after each node, measured if possible, and predicted. Acts follow one
// another, each from the slowest rank's end of the previous one; labels name the act if there are several.
// Both files name the membership if it is not the first. REQUIRES: at least one act, all of one step.
void write_step_trace(survive::Control& control, const std::vector<TracedAct>& acts,
                      const std::filesystem::path& directory, int64_t epoch);

}  // namespace sluice::run
