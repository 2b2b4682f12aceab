// The event clock: computes when every node of a step graph runs, and in which order all ranks run it.
#pragma once

#include "graph/step_graph.h"

namespace sluice::graph {

// A list scheduler over events with rendezvous. A node starts when its dependencies have ended and its
// stream is free on all its members. Among startable nodes the one with the earliest start is
// committed. Ties go to the one that has been ready longer, then to the smaller id. Nothing is
// buffered: an event occupies its stream on every member from start to end. It lasts for its duration,
// or longer if it shares network adapters with others (graph/nics.h). The commit number is `seq`.
//
// Sets seq, start_ns, end_ns, the makespan, and the programs. Start times never descend along seq.
// Deterministic; O(n log n) for n nodes, dependencies and members together.
// REQUIRES: dependencies form no cycle (asserted).
void run_clock(StepGraph& graph);

}  // namespace sluice::graph
