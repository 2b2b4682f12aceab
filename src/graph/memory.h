// How many bytes each rank needs at most while it runs its program, whatever the durations: a rank's own
// order of cells decides it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "graph/step_graph.h"

namespace sluice::graph {

struct RankMemory {
  int64_t fixed_bytes = 0;  // compute shards, accumulators, owner slices
  int64_t peak_bytes = 0;   // with the activations of the fullest moment and what a cell has at work then
  int node = -1;            // during which it is reached; -1: none
};

// By rank. A forward takes what its layers keep under the micro-batch's memory policy, a deferred weight
// gradient what it holds beyond that, by the tokens of the rank's lane; both go back behind the weight
// gradient. Where lanes share parameters a cell has what it gathers at work too. A recomputed layer's rest is
// there while its backward runs; so is what any cell has at work (cost::CostModel::working_bytes). REQUIRES:
// the clock has run.
std::vector<RankMemory> predicted_memory(const StepGraph& graph, const cost::CostModel& cost);

// By rank, the bytes of rows that an act of a trunk has at its ends beside what predicted_memory counts: those that
// come and those that it leaves, in training as gradients too. 0 where the trunk has the model's own end.
std::vector<int64_t> trunk_row_bytes(const StepGraph& graph, const cost::CostModel& cost);

// What a rank uses from a time on, as predicted_memory counts it.
struct MemoryUse {
  int64_t time_ns = 0;
  int64_t bytes = 0;
};
// Of each of the ranks: the fixed bytes at 0, then a use for each change, several at one time where cells
// take and give at once. The largest is predicted_memory's peak.
std::vector<std::vector<MemoryUse>> memory_over_time(const StepGraph& graph, const cost::CostModel& cost,
                                                     const std::vector<int>& ranks);

// "" when every rank stays within the device (or its size is unknown, 0), else one line naming the fullest
// rank, its peak, the capacity and the way out.
std::string memory_fault(const StepGraph& graph, const cost::CostModel& cost);

}  // namespace sluice::graph
