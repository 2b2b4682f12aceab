// FSDP all-gathers and reduce-scatters beside cells. In the graph they
// are part of their cells; in timelines they have a stream of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/pass_times.h"
#include "graph/step_graph.h"
#include "graph/trace.h"

namespace sluice::graph {

// A gather of an operation's parameters, or a sum of its gradients, inside runs of lanes or between runs.
struct FsdpMove {
  int node = 0;          // the cell that issues it
  int64_t position = 0;  // the operation's, in the model program
  cost::Movement movement = cost::Movement::kGather;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// The moves of all cells in seq order, at the clock's times (cost::pass_moves).
// `cost` must be the graph's own. REQUIRES: the clock has run.
std::vector<FsdpMove> predicted_moves(const StepGraph& graph, const cost::CostModel& cost);

// A rank's record of one move: "gather p0 s0 l0-4 m1 L3-4" of category "gather" on
// Stream::kFsdp. Sums between runs are labelled "scatter between", of category "scatter".
inline constexpr const char* kGather = "gather";
inline constexpr const char* kScatter = "scatter";
TraceRecord trace_record(const StepGraph& graph, const Program& program, const FsdpMove& move, int rank);
// The predicted moves of some ranks; `ranks` ascend.
std::vector<TraceRecord> fsdp_records(const StepGraph& graph, const cost::CostModel& cost,
                                      const std::vector<int>& ranks);

}  // namespace sluice::graph
