// The step graph: every rank's nodes for one step. It has three interpreters:
// `runtime` runs it, graph/clock times it, graph/trace draws it.
//
// Every node is one event: a transfer, exchange or tensor-parallel cell starts when all its members have
// reached it. The clock gives each event its commit number `seq`; every stream of every rank runs its nodes
// in ascending seq, so no durations can deadlock it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/link_plan.h"
#include "graph/model_program.h"
#include "graph/node.h"
#include "strategy/pass.h"

namespace sluice::graph {

struct StepGraph {
  int world_size = 0;
  int64_t step = 0;
  Purpose purpose = Purpose::kTrain;
  Program program;  // the model's, or that of the trunk that the graph computes
  strategy::StepPlan plan;
  std::vector<std::vector<strategy::Pass>> passes;  // the plan's, by pipeline
  // Layout and rounds of the pipelines at work; null where no parameters move.
  std::shared_ptr<const LinkPlan> links;
  std::vector<Node> nodes;
  // By rank: ids of the nodes it is a member of, in ascending seq.
  std::vector<std::vector<int>> programs;
  int64_t makespan_ns = 0;

  const Node& node(int id) const { return nodes[static_cast<size_t>(id)]; }
  // The slowdown at which its cells were timed (strategy::Pipeline); 100 for other nodes.
  int slowdown_percent(const Node& of) const {
    return is_compute_cell(of.kind)
               ? plan.pipelines[static_cast<size_t>(of.at()->pipeline)].pipeline.slowdown_percent
               : 100;
  }
  // Ids of all nodes in ascending seq. REQUIRES: the clock has run.
  std::vector<int> in_order() const;
};

// One line per node in seq order; the same graph gives the same text everywhere.
std::string to_text(const StepGraph& graph);
// Hash over every node's seq, kind, members and bytes. Ranks compare it one step ahead.
uint64_t hash(const StepGraph& graph);

}  // namespace sluice::graph
