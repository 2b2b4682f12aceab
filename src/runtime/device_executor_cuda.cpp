#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/device_executor.h"
#include "runtime/local_program.h"
#include "transport/cuda_check.h"

namespace sluice::runtime {
namespace {

using transport::cuda_check;

// Compute nodes that are issued beyond the one that the GPU is at: enough to hide the calling thread's work.
constexpr size_t kMostComputeAhead = 4;

}  // namespace

// Not in the unnamed namespace: members of a named type have it.
namespace device_work {

// A point in a stream's work, with its time.
class Event {
 public:
  Event() { cuda_check(cudaEventCreate(&event_), "making an event"); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }

  void record(const c10::cuda::CUDAStream& stream) {
    cuda_check(cudaEventRecord(event_, stream.stream()), "recording an event");
  }
  void block(const c10::cuda::CUDAStream& stream) const {
    cuda_check(cudaStreamWaitEvent(stream.stream(), event_, 0), "waiting for an event");
  }
  void synchronize() const { cuda_check(cudaEventSynchronize(event_), "work of the step"); }
  // REQUIRES: both have happened.
  int64_t since_ns(const Event& earlier) const {
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "reading an event's time");
    return std::llround(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace device_work

// The streams, and events that are used again from step to step.
class DeviceExecutor::Streams {
  using Event = device_work::Event;

 public:
  explicit Streams(c10::DeviceIndex device) {
    for (int stream = 0; stream < graph::kStreams; ++stream) {
      // Transfers go first: they occupy little, and other ranks wait for them.
      const bool urgent = static_cast<graph::Stream>(stream) != graph::Stream::kCompute;
      streams_.push_back(c10::cuda::getStreamFromPool(urgent, device));
    }
  }

  const c10::cuda::CUDAStream& operator[](graph::Stream stream) const {
    return streams_[static_cast<size_t>(stream)];
  }

  void begin_step(const c10::cuda::CUDAStream& caller, int nodes) {
    while (begins_.size() < static_cast<size_t>(nodes)) {
      begins_.emplace_back();
      ends_.emplace_back();
    }
    compute_ahead_.clear();
    begin_.record(caller);
    for (const c10::cuda::CUDAStream& stream : streams_) begin_.block(stream);
  }

  // Issues one node behind its dependencies.
  void issue(const LocalProgram& program, int position, NodeRunner& runner) {
    const c10::cuda::CUDAStream& stream = (*this)[program.stream(position)];
    if (program.stream(position) == graph::Stream::kCompute) bound_compute_ahead(position);
    for (const int dependency : program.dependencies(position)) {
      if (program.stream(dependency) != program.stream(position)) end(dependency).block(stream);
    }
    const c10::cuda::CUDAStreamGuard guard(stream);
    begins_[static_cast<size_t>(position)].record(stream);
    runner.run(program.node(position));
    end(position).record(stream);
  }

  void synchronize() const {
    for (const c10::cuda::CUDAStream& stream : streams_) {
      cuda_check(cudaStreamSynchronize(stream.stream()), "work of the step");
    }
  }

  Measurement measurement(const LocalProgram& program, int position) const {
    const auto at = static_cast<size_t>(position);
    return {program.node(position).id, begins_[at].since_ns(begin_), ends_[at].since_ns(begin_)};
  }

 private:
  // Memory that a transfer frees (an offloaded activation) can be given to the next cells only when the GPU
  // has come that far, so the calling thread, which allocates as it issues, must not run far ahead of it.
  void bound_compute_ahead(int position) {
    if (compute_ahead_.size() == kMostComputeAhead) {
      end(compute_ahead_.front()).synchronize();
      compute_ahead_.pop_front();
    }
    compute_ahead_.push_back(position);
  }

  Event& end(int position) { return ends_[static_cast<size_t>(position)]; }

  std::vector<c10::cuda::CUDAStream> streams_;
  std::deque<int> compute_ahead_;  // compute nodes issued last, oldest first
  Event begin_;
  std::vector<Event> begins_;  // by program position
  std::vector<Event> ends_;
};

DeviceExecutor::DeviceExecutor(Options options) : options_(std::move(options)) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options_.device));
  streams_ = std::make_unique<Streams>(guard.current_device().index());
}

DeviceExecutor::~DeviceExecutor() = default;

StepTiming DeviceExecutor::run(const graph::StepGraph& graph, int rank, NodeRunner& runner) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options_.device));
  const LocalProgram program(graph, rank);
  std::vector<Measurement> measured;
  try {
    streams_->begin_step(c10::cuda::getCurrentCUDAStream(), program.size());
    for (int position = 0; position < program.size(); ++position) {
      const graph::Stream stream = program.stream(position);
      if (options_.watch != nullptr) options_.watch->begin(stream, program.node(position), graph.step);
      streams_->issue(program, position, runner);
      if (options_.watch != nullptr) options_.watch->end(stream);
    }
    if (options_.watch != nullptr) options_.watch->begin_waiting(graph);
    streams_->synchronize();
    if (options_.watch != nullptr) options_.watch->end(graph::Stream::kControl);
    for (int position = 0; position < program.size(); ++position) {
      measured.push_back(streams_->measurement(program, position));
    }
  } catch (...) {
    if (options_.on_failure) options_.on_failure(std::current_exception());
    throw;
  }
  return program.timing(measured);
}

}  // namespace sluice::runtime
