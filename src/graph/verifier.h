// Proves a step graph before it runs, from its programs as given. A graph without faults cannot deadlock,
// computes every layer of every micro-batch once and in order, uses no parameter before it is pulled, pushes
// every gradient after it is complete, and stays within token credits.
#pragma once

#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "graph/step_graph.h"

namespace sluice::graph {

// One line per fault, with the nodes; empty: proved. Checks, linear in nodes, members and dependencies:
//   shape         ids, members and dependencies are sorted, distinct and exist
//   order         seq is a permutation that ascends along every program and every dependency
//   membership    every node is in the programs of exactly its members
//   communicators the members of each (stream, rank set) see its events in the same order
//   completeness  every layer of every lane part has one forward, one input and one weight gradient, in
//                 this order and on the ranks that hold it; the ends of the model likewise
//   transfers     one per micro-batch, boundary and direction, with the right bytes, producer to consumer
//   pulls         rounds in order; every bucket arrives before its first use, on every holder
//   pushes        rounds in order; every bucket leaves after its last gradient, on every holder
//   credits       tokens admitted to a lane and not yet released, in seq order, fit its credit
//   copies        offloaded rows leave after their forward and are back before their backward
//   end           one reduction of scalars after the last push, then one Update per rank
// If one of the first four fails, the others are not tried: they rely on them.
std::vector<std::string> faults(const StepGraph& graph, const model::ParameterTable& table,
                                const cost::CostModel& cost);

// AssertionError with the first faults: a fault is a bug of ours.
void require_proved(const StepGraph& graph, const model::ParameterTable& table, const cost::CostModel& cost);

}  // namespace sluice::graph
