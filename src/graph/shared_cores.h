// The time of a step on machines with more ranks than cores.
#pragma once

#include <cstdint>

#include "graph/step_graph.h"

namespace sluice::graph {

// The makespan, in nanoseconds, of a graph whose durations were measured while all `ranks` of each
// machine computed at once on its `cores`. When only a part of all ranks computes, these get the others'
// cores: such a moment takes max(that part, cores / ranks) of its time in the graph. Moments without
// computing take their whole time; so do all if every rank has a core. REQUIRES: the clock has run.
int64_t makespan_on_cores_ns(const StepGraph& graph, int ranks, int cores);

}  // namespace sluice::graph
