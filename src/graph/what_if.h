// The cost of slow ranks, by another run of the clock.
#pragma once

#include <cstdint>
#include <span>

#include "graph/step_graph.h"

namespace sluice::graph {

// The clock's makespan if each rank's computing takes `pace_of_rank` times its
// priced duration, whatever slowdown it was planned at. Ranks that meet a slow one
// wait; transfers and copies stay as they are. 1: as priced; 0: unknown, taken as 1.
// REQUIRES: the clock has run on the graph; a figure for each rank, none negative.
int64_t makespan_at(const StepGraph& graph, std::span<const double> pace_of_rank);

}  // namespace sluice::graph
