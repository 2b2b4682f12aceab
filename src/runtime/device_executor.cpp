#include "runtime/device_executor.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <array>
#include <cmath>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "runtime/local_program.h"
#include "runtime/stream_waits.h"

namespace sluice::runtime {
namespace {

// How many compute nodes are issued beyond the device's current one: enough to hide the calling thread's
// work.
constexpr size_t kMostComputeAhead = 4;

c10::Event timed_event(const c10::Device& device) {
  return c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
}

// REQUIRES: both events have happened.
int64_t between_ns(const c10::Event& earlier, const c10::Event& later) {
  return std::llround(earlier.elapsedTime(later) * 1e6);
}

// A device reports failed work only to a thread that waits for it.
template <typename Wait>
void wait_for_work(const Wait& wait) {
  try {
    wait();
  } catch (const c10::Error& error) {
    throw base::RunError(base::text("work of the step failed: ", error.what_without_backtrace()));
  }
}

}  // namespace

// The streams, and the events, which are reused from step to step.
class DeviceExecutor::Streams final : public DeviceNodes {
 public:
  explicit Streams(const c10::Device& device) : device_(device), begin_(timed_event(device)), waits_(device) {
    const c10::impl::VirtualGuardImpl streams(device.type());
    for (int stream = 0; stream < graph::kStreams; ++stream) {
      // Transfers go first: they occupy little, and other ranks wait for them.
      const bool urgent = static_cast<graph::Stream>(stream) != graph::Stream::kCompute;
      streams_.push_back(streams.getStreamFromGlobalPool(device, urgent));
    }
  }

  void begin_step(const c10::Stream& caller, const LocalProgram& program, int64_t step) {
    while (begins_.size() < static_cast<size_t>(program.size())) {
      begins_.push_back(timed_event(device_));
      ends_.push_back(timed_event(device_));
      waits_behind_.push_back(0);
    }
    compute_ahead_.clear();
    waits_.begin_step(of(graph::Stream::kCompute));
    begin_.record(caller);
    for (const c10::Stream& stream : streams_) begin_.block(stream);
    const std::lock_guard lock(issued_mutex_);
    issued_ = {.program = &program, .step = step, .first_serial = issued_.first_serial + issued_.nodes};
  }
  // The program goes.
  void end_step() {
    const std::lock_guard lock(issued_mutex_);
    issued_.program = nullptr;
  }

  // Blocks until the device has come so far that the node may be issued.
  void await(const LocalProgram& program, int position) {
    if (program.stream(position) == graph::Stream::kCompute) bound_compute_ahead(position);
  }

  // Issues one node after its dependencies.
  void issue(const LocalProgram& program, int position, NodeRunner& runner) {
    const c10::Stream& stream = of(program.stream(position));
    for (const int dependency : program.dependencies(position)) {
      if (program.stream(dependency) != program.stream(position)) end(dependency).block(stream);
    }
    const c10::StreamGuard guard(stream);
    begins_[static_cast<size_t>(position)].record(stream);
    runner.run(program.node(position));
    end(position).record(stream);
    waits_behind_[static_cast<size_t>(position)] = waits_.waits();
    const std::lock_guard lock(issued_mutex_);
    issued_.nodes = position + 1;
  }

  void synchronize() const {
    for (const c10::Stream& stream : streams_) wait_for_work([&] { stream.synchronize(); });
  }

  Measurement measurement(const LocalProgram& program, int position) const {
    const auto at = static_cast<size_t>(position);
    const size_t before = position == 0 ? 0 : waits_behind_[at - 1];
    return {.node = program.node(position).id,
            .start_ns = between_ns(begin_, begins_[at]),
            .end_ns = between_ns(begin_, ends_[at]),
            .waited_ns = waits_.settle(before, waits_behind_[at])};
  }

  StreamWaits& waits() { return waits_; }

  // Events of nodes that were issued are not recorded again before the step has ended, so that another thread
  // may ask them.
  std::array<BusyStream, graph::kStreams> running() const override {
    std::array<BusyStream, graph::kStreams> found;
    const std::lock_guard lock(issued_mutex_);
    if (issued_.program == nullptr) return found;
    try {
      for (size_t stream = 0; stream < found.size(); ++stream)
        found[stream] = running_on(static_cast<graph::Stream>(stream));
    } catch (const c10::Error&) {
      // The device has failed, which the thread that waits for it tells.
    }
    return found;
  }

 private:
  // A transfer frees memory (an offloaded activation) for the next cells only when the device has
  // come that far. The calling thread allocates as it issues, so it must not run far ahead of the
  // device.
  void bound_compute_ahead(int position) {
    if (compute_ahead_.size() == kMostComputeAhead) {
      wait_for_work([&] { end(compute_ahead_.front()).synchronize(); });
      compute_ahead_.pop_front();
    }
    compute_ahead_.push_back(position);
  }

  // The oldest node of a stream that is not done, if it has begun: before, it waits for other streams.
  BusyStream running_on(graph::Stream stream) const {
    for (const int position : issued_.program->queue(stream)) {
      const auto at = static_cast<size_t>(position);
      if (position >= issued_.nodes) break;
      if (ends_[at].query()) continue;
      if (!begins_[at].query()) break;
      return busy_with(issued_.program->node(position), issued_.first_serial + position + 1, issued_.step);
    }
    return {};
  }

  // Nodes that were issued so far. Those of a step have the serials behind `first_serial`.
  struct Issued {
    const LocalProgram* program = nullptr;  // null: no step runs
    int64_t step = 0;
    int64_t first_serial = 0;
    int nodes = 0;
  };

  const c10::Stream& of(graph::Stream stream) const { return streams_[static_cast<size_t>(stream)]; }
  c10::Event& end(int position) { return ends_[static_cast<size_t>(position)]; }

  c10::Device device_;
  std::vector<c10::Stream> streams_;
  std::deque<int> compute_ahead_;  // compute nodes issued last, oldest first
  c10::Event begin_;
  std::vector<c10::Event> begins_;  // by program position
  std::vector<c10::Event> ends_;
  StreamWaits waits_;
  std::vector<size_t> waits_behind_;  // by program position: waits of the step up to the node's end
  mutable std::mutex issued_mutex_;
  Issued issued_;
};

DeviceExecutor::DeviceExecutor(Options options) : options_(std::move(options)) {
  const c10::DeviceGuard guard(options_.device);
  streams_ = std::make_unique<Streams>(options_.device);
}

DeviceExecutor::~DeviceExecutor() = default;

StepTiming DeviceExecutor::run(const graph::StepGraph& graph, int rank, NodeRunner& runner) {
  const c10::DeviceGuard guard(options_.device);
  const LocalProgram program(graph, rank);
  NodeWatch none;
  NodeWatch& watch = options_.watch != nullptr ? *options_.watch : none;
  const StreamWaits::Counting counting(streams_->waits(), runner.wait_clocks());
  const NodeWatch::Following following(watch, *streams_);
  std::vector<Measurement> measured;
  try {
    streams_->begin_step(c10::impl::VirtualGuardImpl(options_.device.type()).getStream(options_.device),
                         program, graph.step);
    for (int position = 0; position < program.size(); ++position) {
      const graph::Stream stream = program.stream(position);
      watch.begin_waiting(graph);
      streams_->await(program, position);
      watch.end(graph::Stream::kControl);
      watch.begin(stream, program.node(position), graph.step);
      streams_->issue(program, position, runner);
      watch.end(stream);
    }
    watch.begin_waiting(graph);
    streams_->synchronize();
    watch.end(graph::Stream::kControl);
    for (int position = 0; position < program.size(); ++position) {
      measured.push_back(streams_->measurement(program, position));
    }
    streams_->end_step();
  } catch (...) {
    streams_->end_step();
    if (options_.on_failure) options_.on_failure(std::current_exception());
    throw;
  }
  return program.timing(measured);
}

}  // namespace sluice::runtime
