// A step's timelines on disk: what every node of every rank took, and what was predicted.
#pragma once

#include <filesystem>

#include "graph/step_graph.h"
#include "runtime/executor.h"
#include "train/control.h"

namespace sluice::train {

// Collective. Rank 0 gathers all ranks' measurements and writes trace-STEP.json (measured) and
// trace-STEP-predicted.json into `directory`. Times count from each rank's own start of the step.
void write_step_trace(Control& control, const graph::StepGraph& graph, const runtime::StepTiming& timing,
                      const std::filesystem::path& directory);

}  // namespace sluice::train
