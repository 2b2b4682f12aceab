// Runs one rank's part of a step graph and measures every node.
//
// Host executor: each stream is a queue with a thread of its own; the calling thread is the compute stream. A
// node starts when the nodes before it on its stream and its dependencies on this rank are done. Waiting for
// other ranks happens inside its communication. Streams run in ascending seq, so they cannot deadlock
// (graph/verifier).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/counted_waits.h"
#include "graph/step_graph.h"
#include "runtime/node_watch.h"
#include "runtime/step_timing.h"

namespace sluice::runtime {

// Does a node's work on this rank. run() is called from the thread of the node's stream.
class NodeRunner {
 public:
  virtual ~NodeRunner() = default;
  virtual void run(const graph::Node& node) = 0;
  // Total time that cells have waited inside for other ranks; called on the compute stream's thread.
  virtual int64_t waited_ns() const { return 0; }
  // The clocks of those waits. A device's waits are added to them when the step has ended.
  virtual std::vector<comm::WaitClock*> wait_clocks() const { return {}; }
  // Rank that the last node of another stream waited for longest; −1: unknown. On that stream's thread.
  virtual int awaited_rank(graph::Stream) const { return -1; }
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs the program of `rank` to its end. Rethrows the first node's exception after all streams have
  // stopped; the step's results are then undefined.
  virtual StepTiming run(const graph::StepGraph& graph, int rank, NodeRunner& runner) = 0;
};

// Streams as threads, for host memory.
class HostExecutor : public Executor {
 public:
  struct Options {
    // Called as soon as a node throws, on the node's thread. Other streams of this step may wait for ever for
    // data of that node, so a caller that cannot afford to wait ends the process here.
    std::function<void(std::exception_ptr)> on_failure;
    // Receives every node's beginning and end; null: no watch. Outlives the executor.
    NodeWatch* watch = nullptr;
  };
  explicit HostExecutor(Options options);
  ~HostExecutor() override;
  StepTiming run(const graph::StepGraph& graph, int rank, NodeRunner& runner) override;

 private:
  struct Step;
  void serve(graph::Stream stream);
  void stop();

  Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Step* step_ = nullptr;    // the current step; guarded by mutex_
  int64_t generation_ = 0;  // counts steps; guarded by mutex_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::runtime
