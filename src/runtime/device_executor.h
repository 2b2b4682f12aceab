// Runs one rank's part of a step graph on a device with streams. The calling thread issues every node in
// ascending seq on the stream of its graph::Stream; events make the device wait for dependencies.
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <memory>

#include "runtime/executor.h"

namespace sluice::runtime {

// A NodeRunner's run() is called with the node's stream current and must issue its work there. It may block
// the host (scalars, host-staged transfers): that delays only nodes later in seq. Call
// Tensor::record_stream() on a tensor used outside the stream that allocated it, before its last reference
// goes: the allocator reuses memory in the order of the allocating stream.
//
// Work issued on the caller's stream before run() is done before the step begins. When run() returns, the
// step's work is done. Measurements are the device's: a node begins when its stream has reached it and its
// dependencies are done, and waits as long as the compute stream does for operations of communicators.
class DeviceExecutor final : public Executor {
 public:
  struct Options {
    c10::Device device;                                  // any but the host: streams and events are c10's
    std::function<void(std::exception_ptr)> on_failure;  // as HostExecutor's
    // Receives the issue of each node, then the wait for the step, and may ask which nodes the device runs.
    NodeWatch* watch = nullptr;
  };
  explicit DeviceExecutor(Options options);
  ~DeviceExecutor() override;

  // Unlike HostExecutor, does not wait for other streams when a node throws: they may wait for ever for data
  // of that node.
  StepTiming run(const graph::StepGraph& graph, int rank, NodeRunner& runner) override;

 private:
  class Streams;

  Options options_;
  std::unique_ptr<Streams> streams_;
};

}  // namespace sluice::runtime
