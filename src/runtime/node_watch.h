// The nodes that a rank's streams are running, for an observer on another thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "graph/step_graph.h"

namespace sluice::runtime {

// The node that a stream is running.
struct BusyStream {
  int64_t serial = 0;  // counts the nodes that any stream of this rank has begun; 0: the stream is idle
  graph::NodeKind kind = graph::NodeKind::kUpdate;
  graph::Payload payload;
  int64_t step = 0;
  bool alone = true;  // the node has no other member to wait for
  int64_t planned_ns = 0;
};

// Thread-safe.
class NodeWatch {
 public:
  void begin(graph::Stream stream, const graph::Node& node, int64_t step) {
    const std::lock_guard lock(mutex_);
    at(stream) = {++serial_, node.kind, node.payload, step, node.members.size() == 1, node.duration_ns};
  }
  // Marks the wait for the whole step, when a device runs nodes that the host has only issued: the current
  // node is unknown.
  void begin_waiting(const graph::StepGraph& graph) {
    const std::lock_guard lock(mutex_);
    at(graph::Stream::kControl) = {.serial = ++serial_,
                                   .kind = graph::NodeKind::kUpdate,
                                   .step = graph.step,
                                   .alone = false,
                                   .planned_ns = graph.makespan_ns};
  }
  void end(graph::Stream stream) {
    const std::lock_guard lock(mutex_);
    at(stream) = {};
  }
  std::array<BusyStream, graph::kStreams> busy() const {
    const std::lock_guard lock(mutex_);
    return streams_;
  }

 private:
  BusyStream& at(graph::Stream stream) { return streams_[static_cast<size_t>(stream)]; }

  mutable std::mutex mutex_;
  int64_t serial_ = 0;
  std::array<BusyStream, graph::kStreams> streams_;
};

}  // namespace sluice::runtime
