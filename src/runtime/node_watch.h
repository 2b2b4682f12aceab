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

inline BusyStream busy_with(const graph::Node& node, int64_t serial, int64_t step) {
  return {serial, node.kind, node.payload, step, node.members.size() == 1, node.duration_ns};
}

// A device, which runs nodes after the host has issued them.
class DeviceNodes {
 public:
  virtual ~DeviceNodes() = default;
  // The nodes that it is running. Thread-safe.
  virtual std::array<BusyStream, graph::kStreams> running() const = 0;
};

// Thread-safe.
class NodeWatch {
 public:
  void begin(graph::Stream stream, const graph::Node& node, int64_t step) {
    const std::lock_guard lock(mutex_);
    at(stream) = busy_with(node, ++serial_, step);
  }
  // Marks a wait for a device that runs earlier nodes, until end(kControl).
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

  // Asks a device while this lives, because the host may wait in the issue of one node for another to end.
  class Following {
   public:
    Following(NodeWatch& watch, const DeviceNodes& device) : watch_(watch) { watch_.follow(&device); }
    ~Following() { watch_.follow(nullptr); }
    Following(const Following&) = delete;
    Following& operator=(const Following&) = delete;

   private:
    NodeWatch& watch_;
  };

  // The nodes that streams are running: a device's, or those that the host is in.
  std::array<BusyStream, graph::kStreams> busy() const {
    const std::lock_guard lock(mutex_);
    if (device_ == nullptr) return streams_;
    const auto running = device_->running();
    for (const BusyStream& stream : running) {
      if (stream.serial != 0) return running;
    }
    return streams_;
  }
  // The nodes that the host is in, if a device runs them later.
  std::array<BusyStream, graph::kStreams> issued() const {
    const std::lock_guard lock(mutex_);
    return streams_;
  }

 private:
  void follow(const DeviceNodes* device) {
    const std::lock_guard lock(mutex_);
    device_ = device;
  }
  BusyStream& at(graph::Stream stream) { return streams_[static_cast<size_t>(stream)]; }

  mutable std::mutex mutex_;
  int64_t serial_ = 0;
  std::array<BusyStream, graph::kStreams> streams_;
  const DeviceNodes* device_ = nullptr;
};

}  // namespace sluice::runtime
