// The most bytes that each rank needs while it runs its program. They
// don't depend on durations: a rank's own order of cells determines them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "graph/step_graph.h"

namespace sluice::graph {

struct RankMemory {
  int64_t fixed_bytes = 0;  // compute shards, accumulators, owner slices
  int64_t peak_bytes = 0;   // maximum, with activations and the running cell's working memory
  int node = -1;            // the running cell at the peak; -1: none
};

// By rank. A forward allocates the activations that its layers keep under the micro-batch's
// memory policy. A deferred weight gradient allocates what it holds beyond these. Both count the
// tokens of the rank's lane and are freed after the weight gradient. While a cell runs, its
// working memory counts (cost::CostModel::working_bytes), with FSDP also its gathered parameters,
// in backward also a recomputed layer's other activations. Rows at a stage's borders count in whichever order
// the other ranks run (graph/waiting_rows.h). REQUIRES: the clock has run.
std::vector<RankMemory> predicted_memory(const StepGraph& graph, const cost::CostModel& cost);

// By rank, the bytes of rows at the ends of a trunk's act beyond predicted_memory: rows that
// enter and leave, and in training their gradients. 0 where the trunk has the model's own end.
std::vector<int64_t> trunk_row_bytes(const StepGraph& graph, const cost::CostModel& cost);

// A rank's memory from a time on, as in predicted_memory.
struct MemoryUse {
  int64_t time_ns = 0;
  int64_t bytes = 0;
};
// For each of the ranks: the fixed bytes at time 0, then one entry per change, several at
// one time if cells allocate and free at once. The largest entry is predicted_memory's peak.
std::vector<std::vector<MemoryUse>> memory_over_time(const StepGraph& graph, const cost::CostModel& cost,
                                                     const std::vector<int>& ranks);

// "" if every rank stays within its device (or the device's size is unknown, 0).
// Otherwise one line with the fullest rank, its peak, the capacity and the way out.
std::string memory_fault(const StepGraph& graph, const cost::CostModel& cost);

}  // namespace sluice::graph
