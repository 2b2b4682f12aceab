// What all ranks measured of a step, gathered.
#pragma once

#include <vector>

#include "graph/step_graph.h"
#include "graph/step_times.h"
#include "report/step_record.h"
#include "runtime/step_timing.h"
#include "survive/control.h"

namespace sluice::run {

// By rank, in the order of its program, on the rank's own clock.
using Measurements = std::vector<std::vector<runtime::Measurement>>;

// Collective: 32 bytes a node of the longest program, to every rank.
Measurements gather_measurements(survive::Control& control, const graph::StepGraph& graph,
                                 const runtime::StepTiming& timing);

// On one clock.
graph::StepTimes times_of(const graph::StepGraph& graph, const Measurements& measured);

// Where the step's critical path lay, by rank and kind, the most time first; not more than a line should
// hold.
std::vector<report::PathShare> path_shares(const graph::StepGraph& graph, const graph::StepTimes& times);

}  // namespace sluice::run
