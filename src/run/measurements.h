// Gathers all ranks' measurements of a step.
#pragma once

#include <vector>

#include "graph/step_graph.h"
#include "graph/step_times.h"
#include "report/step_record.h"
#include "runtime/step_timing.h"
#include "survive/control.h"

namespace sluice::run {

// By rank, in the order of the rank's program, on the rank's own clock.
using Measurements = std::vector<std::vector<runtime::Measurement>>;

// Collective: gathers to every rank, with 32 bytes per node of the longest program.
Measurements gather_measurements(survive::Control& control, const graph::StepGraph& graph,
                                 const runtime::StepTiming& timing);

// The measured times, on one common clock.
graph::StepTimes times_of(const graph::StepGraph& graph, const Measurements& measured);

// The measured critical path of the step, by rank and kind of work: the largest shares first, as many as fit
// into a line.
std::vector<report::PathShare> path_shares(const graph::StepGraph& graph, const graph::StepTimes& times);

}  // namespace sluice::run
