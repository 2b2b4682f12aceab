#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "base/text.h"

namespace sluice::runtime {

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// One step under way: what is left of each stream, and which nodes are done.
struct HostExecutor::Step {
  const graph::StepGraph& graph;
  NodeRunner& runner;
  const Options& options;
  int64_t begin_ns = now_ns();
  std::array<std::vector<int>, graph::kStreams> queues;  // positions in the program
  const std::vector<int>& program;
  std::vector<std::vector<int>> dependencies;  // by program position: positions on this rank
  std::vector<Measurement> measured;           // by program position
  int streams_busy = 0;

  std::mutex mutex;
  std::condition_variable finished;
  std::vector<char> done;  // by program position; guarded by mutex
  std::exception_ptr failure;

  Step(const graph::StepGraph& step_graph, int rank, NodeRunner& node_runner, const Options& executor_options)
      : graph(step_graph),
        runner(node_runner),
        options(executor_options),
        program(step_graph.programs[static_cast<size_t>(rank)]),
        dependencies(program.size()),
        measured(program.size()),
        done(program.size(), 0) {
    std::vector<int> position(graph.nodes.size(), -1);
    for (size_t i = 0; i < program.size(); ++i) {
      const graph::Node& node = graph.nodes[static_cast<size_t>(program[i])];
      position[static_cast<size_t>(node.id)] = static_cast<int>(i);
      queues[static_cast<size_t>(graph::stream_of(node.kind))].push_back(static_cast<int>(i));
      for (const int dependency : node.dependencies) {
        const int where = position[static_cast<size_t>(dependency)];
        if (where >= 0) dependencies[i].push_back(where);
      }
    }
  }

  // Blocks until the node's dependencies are done; false when the step has failed.
  bool wait_for_dependencies(int at) {
    std::unique_lock lock(mutex);
    finished.wait(lock, [&] {
      return failure || std::ranges::all_of(dependencies[static_cast<size_t>(at)], [&](int dependency) {
               return done[static_cast<size_t>(dependency)];
             });
    });
    return !failure;
  }

  void run_stream(graph::Stream stream) {
    for (const int at : queues[static_cast<size_t>(stream)]) {
      if (!wait_for_dependencies(at)) return;
      const graph::Node& node = graph.nodes[static_cast<size_t>(program[static_cast<size_t>(at)])];
      Measurement& measurement = measured[static_cast<size_t>(at)];
      measurement = {node.id, now_ns() - begin_ns, 0};
      std::exception_ptr error;
      try {
        runner.run(node);
      } catch (...) {
        error = std::current_exception();
      }
      measurement.end_ns = now_ns() - begin_ns;
      if (error && options.on_failure) options.on_failure(error);
      const std::lock_guard lock(mutex);
      done[static_cast<size_t>(at)] = 1;
      if (error && !failure) failure = error;
      finished.notify_all();
    }
  }

  const Measurement& at(int position) const { return measured[static_cast<size_t>(position)]; }
  graph::NodeKind kind(int position) const {
    return graph.nodes[static_cast<size_t>(program[static_cast<size_t>(position)])].kind;
  }

  // When the last link round that `position` waits for was over, directly or through the scalars.
  int64_t link_ready_ns(int position) const {
    int64_t ready_ns = 0;
    for (const int dependency : dependencies[static_cast<size_t>(position)]) {
      const graph::Stream stream = graph::stream_of(kind(dependency));
      if (stream == graph::Stream::kLinkIntra || stream == graph::Stream::kLinkInter) {
        ready_ns = std::max(ready_ns, at(dependency).end_ns);
      } else if (kind(dependency) == graph::NodeKind::kReduceScalars) {
        ready_ns = std::max(ready_ns, link_ready_ns(dependency));
      }
    }
    return ready_ns;
  }

  StepTiming timing() const {
    StepTiming result;
    result.nodes = measured;
    for (const Measurement& measurement : measured)
      result.step_ns = std::max(result.step_ns, measurement.end_ns);
    int64_t free_ns = 0;
    for (const int position : queues[static_cast<size_t>(graph::Stream::kCompute)]) {
      int64_t ready_ns = free_ns;
      for (const int dependency : dependencies[static_cast<size_t>(position)]) {
        ready_ns = std::max(ready_ns, at(dependency).end_ns);
      }
      result.compute_ns += at(position).end_ns - at(position).start_ns;
      result.stalled_ns += std::min(ready_ns, at(position).start_ns) - free_ns;
      result.link_exposed_ns += std::max<int64_t>(0, link_ready_ns(position) - free_ns);
      free_ns = at(position).end_ns;
    }
    result.stalled_ns += result.step_ns - free_ns;
    return result;
  }
};

HostExecutor::HostExecutor(Options options) : options_(std::move(options)) {
  for (int stream = 0; stream < graph::kStreams; ++stream) {
    if (static_cast<graph::Stream>(stream) == graph::Stream::kCompute) continue;
    threads_.emplace_back([this, stream] { serve(static_cast<graph::Stream>(stream)); });
  }
}

HostExecutor::~HostExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void HostExecutor::serve(graph::Stream stream) {
  if (options_.on_thread_start) options_.on_thread_start();
  int64_t served = 0;
  while (true) {
    Step* step = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || generation_ > served; });
      if (stopping_) return;
      served = generation_;
      step = step_;
    }
    step->run_stream(stream);
    const std::lock_guard lock(mutex_);
    if (--step->streams_busy == 0) changed_.notify_all();
  }
}

StepTiming HostExecutor::run(const graph::StepGraph& graph, int rank, NodeRunner& runner) {
  Step step(graph, rank, runner, options_);
  {
    const std::lock_guard lock(mutex_);
    step.streams_busy = static_cast<int>(threads_.size());
    step_ = &step;
    ++generation_;
    changed_.notify_all();
  }
  step.run_stream(graph::Stream::kCompute);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return step.streams_busy == 0; });
    step_ = nullptr;
  }
  if (step.failure) std::rethrow_exception(step.failure);
  return step.timing();
}

}  // namespace sluice::runtime
