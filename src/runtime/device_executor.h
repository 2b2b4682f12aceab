// Runs one rank's part of a step graph on a device with streams: the calling thread issues every node in
// ascending seq, each on the stream of its graph::Stream, and the device waits for dependencies by events.
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <memory>

#include "runtime/executor.h"

namespace sluice::runtime {

// A NodeRunner's run() is called with the node's stream current and must issue its work there; it may block
// the host (scalars, host-staged transfers), which delays nothing that comes earlier in seq. A tensor that
// was allocated on one stream and is used on another has to be told so (Tensor::record_stream) before its
// last reference goes: the allocator reuses memory in the order of the stream that it was allocated on.
//
// Work issued on the caller's stream before run() is done before the step begins; when run() returns, the
// step's work is done. Measurements are the device's: a node begins when its stream has reached it and its
// dependencies are done.
class DeviceExecutor final : public Executor {
 public:
  struct Options {
    c10::Device device;                                  // any but the host: streams and events are c10's
    std::function<void(std::exception_ptr)> on_failure;  // as HostExecutor's
    NodeWatch* watch = nullptr;  // is told when nodes are issued, and of the wait behind
  };
  explicit DeviceExecutor(Options options);
  ~DeviceExecutor() override;

  // Unlike HostExecutor, does not wait for other streams when a node throws: they may wait for ever for what
  // that node would have sent.
  StepTiming run(const graph::StepGraph& graph, int rank, NodeRunner& runner) override;

 private:
  class Streams;

  Options options_;
  std::unique_ptr<Streams> streams_;
};

}  // namespace sluice::runtime
