// The order that a step graph imposes on the nodes of one lane, whatever their durations and whichever rank
// is ahead.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "graph/step_graph.h"

namespace sluice::graph {

// One lane of a pipeline, with all its stages: its cells and the transfers between them. A node ends when all
// its members have run it; a member runs it after the nodes before it on the same stream, and after the
// dependencies that it is a member of. A stage takes a micro-batch's rows after its own cells that free the
// micro-batch's credit (Node::dependencies). Vector clocks (Mattern, 1989) count the nodes that must have
// ended before, by stage and stream. Borrows nothing.
class LaneOrder {
 public:
  // REQUIRES: the clock has run.
  LaneOrder(const StepGraph& graph, int pipeline, int lane);

  // A stage's cells or transfers of a stream, in order. The stream is kCompute, kActivation or kGradient.
  const std::vector<int>& nodes(int stage, Stream stream) const { return queues_[at(stage, stream)]; }
  // How many of these, counted from the first, must have ended before the node can end (a transfer) or begin
  // (a cell). REQUIRES: the node is one of the lane's.
  int ended_before(int node, int stage, Stream stream) const {
    return known_.at(node).before[at(stage, stream)];
  }

 private:
  using Clock = std::vector<int>;  // by stage and stream
  struct Known {
    Clock before;
    // Its number on each of its stages; transfers join a stage and the next one.
    int stage = 0;
    std::vector<int> number;
  };
  static constexpr size_t kCounted = 3;  // streams
  static size_t at(int stage, Stream stream) {
    return static_cast<size_t>(stage) * kCounted + static_cast<size_t>(stream);
  }
  void add(const StepGraph& graph, const Node& node, std::vector<Clock>& last);
  // Joins those of the nodes that the stage is a member of.
  void join_own(const StepGraph& graph, const std::vector<int>& nodes, int stage, Clock& clock) const;
  // Counts the node and all before it in.
  static void join(Clock& clock, const Known& node, Stream stream);

  std::vector<std::vector<int>> queues_;        // by stage and stream
  std::unordered_map<int, Known> known_;        // by node
  std::map<int, std::vector<int>> admissions_;  // by pass: the dependencies of its first forward
};

// A node of a stage's transfers: whether the stage receives.
inline bool receives(const Node& node, int stage) {
  return (node.kind == NodeKind::kSendActivation) == (node.transfer().stage < stage);
}

}  // namespace sluice::graph
