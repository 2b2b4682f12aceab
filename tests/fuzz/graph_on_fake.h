// Step graphs on the stand-ins for real ranks: the virtual-time interpreter and threads over the in-process
// transport. Both obey what the runtime obeys: a rank issues its program in order, a stream and a
// communicator run one event at a time, and a rank waits only for dependencies of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/test_virtual_time.h"
#include "graph/step_graph.h"

namespace sluice::fuzz {

// By node, the communicator of its stream and rank set; -1 for nodes of one rank. Numbered from 0 in order
// of first use, the same on all ranks.
std::vector<int> communicators(const graph::StepGraph& graph);

// Dependencies on nodes of other ranks only are left out: nothing tells a rank of them.
comm::VirtualProgram virtual_program(const graph::StepGraph& graph);

// Whether every dependency is between nodes that share a rank.
bool is_local(const graph::StepGraph& graph);

// Runs the graph in virtual time, once without delays and three times with random ones up to a millisecond.
// Throws base::RunError with the cycle when one of them deadlocks, or when it takes longer without delays
// than the clock. Returns is_local: ranks do not wait for admission, so only then must the two times be
// equal.
bool run_in_virtual_time(const graph::StepGraph& graph, uint64_t seed);

// Runs the graph with a thread for each stream of each rank, every event exchanging a few bytes under random
// delays. "" when all came to an end, else the error of the first rank that failed.
std::string run_on_threads(const graph::StepGraph& graph, uint64_t seed);

}  // namespace sluice::fuzz
