#include "cluster.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "comm/exchange.h"
#include "device.h"
#include "runtime/link_mover.h"

namespace sluice::stand_in {
namespace {

int64_t sum_of(std::span<const int64_t> parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

// Nothing is pending on the host: the stream's later work is behind an operation, as it is with NCCL.
class StandInCommunicator final : public comm::Communicator {
 public:
  enum class Time : uint8_t { kOwn, kOfTheLast };  // an operation ends in
  StandInCommunicator(std::unique_ptr<comm::Communicator> host, c10::Device device, Time time)
      : Communicator(host->name(), host->ranks(), host->rank()),
        host_(std::move(host)),
        device_(device),
        time_(time) {}

  comm::PendingPtr all_gather(const void* send, void* receive, int64_t bytes) override {
    begin();
    touch(send, bytes, Mode::kRead, "all_gather");
    touch(receive, bytes * size(), Mode::kWrite, "all_gather");
    return end(host_->all_gather(send, receive, bytes));
  }
  comm::PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                              std::span<const int64_t> receive_bytes) override {
    begin();
    touch(send, sum_of(send_bytes), Mode::kRead, "all_to_all");
    touch(receive, sum_of(receive_bytes), Mode::kWrite, "all_to_all");
    return end(host_->all_to_all(send, send_bytes, receive, receive_bytes));
  }
  comm::PendingPtr reduce_scatter(const void* send, void* receive, int64_t count,
                                  comm::DType dtype) override {
    begin();
    const int64_t bytes = count * comm::size_of(dtype);
    touch(send, bytes * size(), Mode::kRead, "reduce_scatter");
    touch(receive, bytes, Mode::kWrite, "reduce_scatter");
    return end(host_->reduce_scatter(send, receive, count, dtype));
  }
  comm::PendingPtr exchange(std::span<const comm::Message> messages) override {
    begin(messages);
    for (const comm::Message& message : messages) {
      if (message.send != nullptr) touch(message.send, message.bytes, Mode::kRead, "send");
      if (message.receive != nullptr) touch(message.receive, message.bytes, Mode::kWrite, "receive");
    }
    return end(host_->exchange(messages));
  }

 private:
  Checker& own() const { return checker(device_.index()); }
  // Of all members.
  void begin() const {
    own().launch(current_stream(device_));
    if (time_ == Time::kOwn) return;
    const int64_t ns = own().ns(current_stream(device_));
    std::vector<int64_t> all(static_cast<size_t>(size()));
    host_->all_gather(&ns, all.data(), sizeof(ns))->wait();
    own().reach(current_stream(device_), *std::ranges::max_element(all));
  }
  // Of members that exchange messages.
  void begin(std::span<const comm::Message> messages) const {
    own().launch(current_stream(device_));
    if (time_ == Time::kOwn) return;
    const int64_t ns = own().ns(current_stream(device_));
    std::map<int, int64_t> of_peers;
    for (const comm::Message& message : messages) of_peers.try_emplace(message.peer, 0);
    std::vector<comm::Message> times;
    for (auto& [peer, time] : of_peers) {
      times.push_back({.send = &ns, .bytes = sizeof(ns), .peer = peer});
      times.push_back({.receive = &time, .bytes = sizeof(ns), .peer = peer});
    }
    host_->exchange(times)->wait();
    for (const auto& [peer, time] : of_peers) own().reach(current_stream(device_), time);
  }
  void touch(const void* data, int64_t bytes, Mode mode, const char* operation) const {
    own().access(current_stream(device_), data, bytes, mode, base::text(operation, " of '", name(), "'"));
  }
  static comm::PendingPtr end(comm::PendingPtr pending) {
    pending->wait();
    return comm::finished();
  }

  std::unique_ptr<comm::Communicator> host_;
  c10::Device device_;
  Time time_;
};

class StandInTransport final : public comm::Transport {
 public:
  StandInTransport(comm::Transport& host, StandInCommunicator::Time time) : host_(host), time_(time) {}
  int rank() const override { return host_.rank(); }
  int world_size() const override { return host_.world_size(); }
  std::unique_ptr<comm::Communicator> communicator(const std::string& name,
                                                   const std::vector<int>& ranks) override {
    return std::make_unique<StandInCommunicator>(host_.communicator(name, ranks), stand_in::device(rank()),
                                                 time_);
  }

 private:
  comm::Transport& host_;
  StandInCommunicator::Time time_;
};

class StandInLaunches final : public runtime::LinkLaunches {
 public:
  explicit StandInLaunches(const c10::Device& device) : device_(device) {}

  void copies(const runtime::CopyJob* jobs, int64_t count) override {
    if (!begin(jobs, count)) return;
    for (int64_t i = 0; i < count; ++i) {
      touch(jobs[i].from, jobs[i].bytes, Mode::kRead, "link copies");
      touch(jobs[i].to, jobs[i].bytes, Mode::kWrite, "link copies");
      std::memcpy(jobs[i].to, jobs[i].from, static_cast<size_t>(jobs[i].bytes));
    }
  }

  void sums(const runtime::SumJob* jobs, int64_t count, const void* const* sources,
            comm::DType dtype) override {
    if (!begin(jobs, count)) return;
    dtype == comm::DType::kFloat64 ? sum<double>(jobs, count, sources) : sum<float>(jobs, count, sources);
  }

 private:
  Checker& own() const { return checker(device_.index()); }
  void touch(const void* data, int64_t bytes, Mode mode, const char* by) const {
    own().access(current_stream(device_), data, bytes, mode, by);
  }
  template <typename Job>
  bool begin(const Job* jobs, int64_t count) const {
    if (count == 0) return false;
    own().launch(current_stream(device_));
    touch(jobs, count * static_cast<int64_t>(sizeof(Job)), Mode::kRead, "a link's list");
    return true;
  }

  template <typename Element>
  void sum(const runtime::SumJob* jobs, int64_t count, const void* const* sources) const {
    for (int64_t j = 0; j < count; ++j) {
      const runtime::SumJob& job = jobs[j];
      const int64_t bytes = job.elements * static_cast<int64_t>(sizeof(Element));
      const void* const* own_sources = sources + job.first_source;
      touch(own_sources, job.sources * static_cast<int64_t>(sizeof(void*)), Mode::kRead, "a link's sources");
      std::vector<Element> total(static_cast<size_t>(job.elements));
      for (int32_t source = 0; source < job.sources; ++source) {
        const Element* term = static_cast<const Element*>(own_sources[source]) + job.offset;
        touch(term, bytes, Mode::kRead, "link sums");
        for (size_t i = 0; i < total.size(); ++i) total[i] = source == 0 ? term[i] : total[i] + term[i];
      }
      touch(job.to, bytes, Mode::kWrite, "link sums");
      std::memcpy(job.to, total.data(), static_cast<size_t>(bytes));
    }
  }

  c10::Device device_;
};

}  // namespace

c10::Device Devices::device(int rank) {
  // Nothing here is differentiated by libtorch: the rank's thread goes straight to the device's operators.
  thread_local const at::AutoDispatchBelowADInplaceOrView below;
  Checker& own = checker(rank);
  own.begin_run();
  own.mutate(mutation);
  if (counts) own.count();
  if (const auto found = launch_ns.find(rank); found != launch_ns.end()) own.launches_take(found->second);
  return stand_in::device(rank);
}

std::unique_ptr<comm::Transport> Devices::transport(comm::Transport& host) {
  using Time = StandInCommunicator::Time;
  return std::make_unique<StandInTransport>(host, launch_ns.empty() ? Time::kOwn : Time::kOfTheLast);
}

std::unique_ptr<runtime::LinkMover> Devices::link_mover(const c10::Device& device) {
  return runtime::device_link_mover(device, std::make_unique<StandInLaunches>(device));
}

DeviceRun run_on_stand_ins(runtime::RunOptions options, Devices devices) {
  options.stand_in = &devices;
  DeviceRun run{.record = runtime::run_in_process(options)};
  for (int rank = 0; rank < options.world_size; ++rank) {
    const Checker::Findings found = checker(rank).end_run();
    run.accesses += found.accesses;
    for (const auto& [fault, count] : found.faults) run.faults[fault] += count;
    for (const auto& [kind, count] : found.counts) {
      Count& all = run.counts[kind];
      all.nodes += count.nodes;
      all.launches += count.launches;
      for (const auto& [by, waits] : count.host_waits) all.host_waits[by] += waits;
    }
    checker(rank).begin_run();  // without the mutation
  }
  return run;
}

std::string text_of(const std::map<std::string, int64_t>& faults) {
  constexpr int kMostShown = 10;
  std::string text;
  int shown = 0;
  for (const auto& [fault, count] : faults) {
    if (++shown <= kMostShown) text += base::text(count, " x ", fault, "\n");
  }
  return text;
}

}  // namespace sluice::stand_in
