// Runs one rank's part of a step graph and measures every node.
//
// Host executor: each stream is a queue with a thread of its own; the calling thread is the compute stream.
// A node starts when the nodes before it on its stream and its dependencies on this rank are done; what it
// waits for on other ranks happens inside its communication. Streams run in ascending seq, so nothing can
// deadlock (graph/verifier).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "graph/share_moves.h"
#include "graph/step_graph.h"
#include "runtime/node_watch.h"

namespace sluice::runtime {

// What a node does on this rank. run() is called from the thread of the node's stream.
class NodeRunner {
 public:
  virtual ~NodeRunner() = default;
  virtual void run(const graph::Node& node) = 0;
};

// When a node ran, in nanoseconds since the step began on this rank.
struct Measurement {
  int node = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t held_bytes = 0;  // by the rank's tensors behind it; 0: not counted (GPUs, whose nodes end later)
};

struct StepTiming {
  std::vector<Measurement> nodes;       // in program order
  std::vector<graph::ShareMove> moves;  // beside them, where lanes share parameters; none on GPUs
  int64_t step_ns = 0;                  // with what the engine does around the nodes
  int64_t compute_ns = 0;               // inside compute nodes
  int64_t stalled_ns = 0;               // compute stream waiting for other streams or peers
  int64_t link_exposed_ns = 0;          // part of stalled_ns: for pull or push
  int64_t overhead_ns() const { return step_ns - compute_ns - stalled_ns; }
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
    // Called at once, on the thread it happened on, when a node throws: other streams of this step may wait
    // for ever for what that node would have sent, so whoever cannot afford to wait ends the process here.
    std::function<void(std::exception_ptr)> on_failure;
    // Is told of every node's beginning and end; null: nobody watches. Outlives the executor.
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
  Step* step_ = nullptr;    // the step under way; guarded by mutex_
  int64_t generation_ = 0;  // counts steps; guarded by mutex_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::runtime
