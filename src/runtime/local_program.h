// One rank's part of a step graph, by position in its program: executors walk over it and time it.
#pragma once

#include <array>
#include <vector>

#include "graph/step_graph.h"
#include "runtime/step_timing.h"

namespace sluice::runtime {

// Borrows the graph.
class LocalProgram {
 public:
  LocalProgram(const graph::StepGraph& graph, int rank);

  int size() const { return static_cast<int>(program_.size()); }
  const graph::Node& node(int position) const {
    return graph_.nodes[static_cast<size_t>(program_[static_cast<size_t>(position)])];
  }
  graph::Stream stream(int position) const { return graph::stream_of(node(position).kind); }
  // Positions of the nodes on this rank that a node waits for; all precede it. A receive waits for all those,
  // too, that other ranks' nodes need before the rows can come.
  const std::vector<int>& dependencies(int position) const {
    return dependencies_[static_cast<size_t>(position)];
  }
  // Positions of the nodes of a stream, in order.
  const std::vector<int>& queue(graph::Stream stream) const { return queues_[static_cast<size_t>(stream)]; }

  // Splits the step's time by cause, from the times of its nodes by position.
  StepTiming timing(const std::vector<Measurement>& measured) const;

 private:
  void bound_receives(int rank, const std::vector<int>& position);
  int64_t link_ready_ns(const std::vector<Measurement>& measured, int position) const;
  int last_before(const std::vector<Measurement>& measured, int position) const;
  void add_awaited(const std::vector<Measurement>& measured, int position, int64_t from_ns, int64_t until_ns,
                   std::map<int, int64_t>& stalled_for) const;
  void add_stall(const std::vector<Measurement>& measured, int position, int64_t free_ns,
                 StepTiming& timing) const;

  const graph::StepGraph& graph_;
  const std::vector<int>& program_;
  std::vector<std::vector<int>> dependencies_;
  std::array<std::vector<int>, graph::kStreams> queues_;
};

}  // namespace sluice::runtime
