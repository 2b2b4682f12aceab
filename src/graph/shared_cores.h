// What a step takes where a machine's ranks are more than its cores.
#pragma once

#include <cstdint>

#include "graph/step_graph.h"

namespace sluice::graph {

// The makespan, in nanoseconds, of a graph whose durations were measured while all `ranks` of each machine
// computed at once on its `cores`. A moment at which only a part of all ranks computes leaves these the
// others' cores: it takes max(that part, cores / ranks) of its time in the graph. Moments at which none
// computes take their whole time, and so do all where every rank has a core. REQUIRES: the clock has run.
int64_t makespan_on_cores_ns(const StepGraph& graph, int ranks, int cores);

}  // namespace sluice::graph
