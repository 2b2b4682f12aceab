// What slow ranks cost: the clock, asked once more.
#pragma once

#include <cstdint>
#include <span>

#include "graph/step_graph.h"

namespace sluice::graph {

// How long the step takes by the clock where each rank takes so many times as long for what it computes, and
// whoever meets it waits; transfers and copies stay as they are. `pace_of_rank`: 1 for a rank as priced,
// whatever pace it was planned at; 0: not known, as priced. REQUIRES: a graph that the clock has run on; a
// pace for each rank, none negative.
int64_t makespan_at(const StepGraph& graph, std::span<const double> pace_of_rank);

}  // namespace sluice::graph
