// What lanes that share parameters gather and sum beside their cells: in the graph it is a part of these, in
// timelines it has a stream of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/pass_times.h"
#include "graph/step_graph.h"
#include "graph/trace.h"

namespace sluice::graph {

// A gather of an operation's parameters, or a sum of its gradients: in runs of lanes, or between these.
struct FsdpMove {
  int node = 0;          // the cell that issues it
  int64_t position = 0;  // of the operation in the model program
  cost::Movement movement = cost::Movement::kGather;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// Of all cells in seq order, as the clock's times have them (cost::pass_moves). `cost`: that the graph was
// built with. REQUIRES: the clock has run.
std::vector<FsdpMove> predicted_moves(const StepGraph& graph, const cost::CostModel& cost);

// A rank's record of one: "gather p0 s0 l0-4 m1 L3-4" of category "gather" on Stream::kShare. Sums between
// runs are "scatter between" and of the category of scatters.
inline constexpr const char* kGather = "gather";
inline constexpr const char* kScatter = "scatter";
TraceRecord trace_record(const StepGraph& graph, const Program& program, const FsdpMove& move, int rank);
// The predicted ones of some ranks, ascending.
std::vector<TraceRecord> fsdp_records(const StepGraph& graph, const cost::CostModel& cost,
                                      const std::vector<int>& ranks);

}  // namespace sluice::graph
