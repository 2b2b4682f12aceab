#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "ops/tensor_memory.h"
#include "runtime/local_program.h"

namespace sluice::runtime {

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// One running step: which nodes are done, and when they ran.
struct HostExecutor::Step {
  LocalProgram program;
  int64_t number;
  NodeRunner& runner;
  const Options& options;
  int64_t begin_ns = now_ns();
  std::vector<Measurement> measured;  // by program position
  int streams_busy = 0;

  static constexpr int kNothing = -1;

  std::mutex mutex;        // guards all below
  std::vector<char> done;  // by program position
  std::exception_ptr failure;
  // By stream: the position that its thread waits to run, and the notice that it may, or that the step has
  // failed.
  std::array<int, graph::kStreams> waiting_for;
  std::array<std::condition_variable, graph::kStreams> notices;

  Step(const graph::StepGraph& graph, int rank, NodeRunner& node_runner, const Options& executor_options)
      : program(graph, rank),
        number(graph.step),
        runner(node_runner),
        options(executor_options),
        measured(static_cast<size_t>(program.size())),
        done(static_cast<size_t>(program.size()), 0) {
    waiting_for.fill(kNothing);
  }

  // REQUIRES: the lock is held.
  bool may_go_on(int at) const {
    return failure || std::ranges::all_of(program.dependencies(at), [&](int dependency) {
             return done[static_cast<size_t>(dependency)];
           });
  }

  // Blocks until the node's dependencies are done; false when the step has failed.
  bool wait_for_dependencies(graph::Stream stream, int at) {
    const auto own = static_cast<size_t>(stream);
    std::unique_lock lock(mutex);
    waiting_for[own] = at;
    notices[own].wait(lock, [&] { return may_go_on(at); });
    waiting_for[own] = kNothing;
    return !failure;
  }

  // Wakes only the streams that can go on: most nodes are awaited by none, and a rank has a thread for each
  // stream. REQUIRES: the lock is held.
  void wake_streams() {
    for (size_t stream = 0; stream < waiting_for.size(); ++stream) {
      if (waiting_for[stream] != kNothing && may_go_on(waiting_for[stream])) notices[stream].notify_one();
    }
  }

  void run_stream(graph::Stream stream) {
    for (const int at : program.queue(stream)) {
      if (!wait_for_dependencies(stream, at)) return;
      const graph::Node& node = program.node(at);
      Measurement& measurement = measured[static_cast<size_t>(at)];
      const bool computes = stream == graph::Stream::kCompute;
      const int64_t waited_before = computes ? runner.waited_ns() : 0;
      measurement = {.node = node.id, .start_ns = now_ns() - begin_ns};
      std::exception_ptr error;
      if (options.watch != nullptr) options.watch->begin(stream, node, number);
      try {
        runner.run(node);
      } catch (...) {
        error = std::current_exception();
      }
      if (options.watch != nullptr) options.watch->end(stream);
      measurement.end_ns = now_ns() - begin_ns;
      measurement.held_bytes = ops::held_tensor_bytes(c10::kCPU);
      if (computes) measurement.waited_ns = runner.waited_ns() - waited_before;
      if (!computes) measurement.awaited_rank = runner.awaited_rank(stream);
      if (error && options.on_failure) options.on_failure(error);
      const std::lock_guard lock(mutex);
      done[static_cast<size_t>(at)] = 1;
      if (error && !failure) failure = error;
      wake_streams();
    }
  }
};

HostExecutor::HostExecutor(Options options) : options_(std::move(options)) {
  try {
    for (int stream = 0; stream < graph::kStreams; ++stream) {
      if (static_cast<graph::Stream>(stream) == graph::Stream::kCompute) continue;
      threads_.emplace_back([this, stream] { serve(static_cast<graph::Stream>(stream)); });
    }
  } catch (...) {
    stop();  // the system refused one of several threads
    throw;
  }
}

HostExecutor::~HostExecutor() { stop(); }

void HostExecutor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void HostExecutor::serve(graph::Stream stream) {
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
  return step.program.timing(step.measured);
}

}  // namespace sluice::runtime
