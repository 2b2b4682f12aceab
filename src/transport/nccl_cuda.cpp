#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "transport/cuda_check.h"
#include "transport/nccl.h"
#include "transport/nccl_api.h"

namespace sluice::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWatchPeriod(100);
constexpr std::chrono::seconds kFarewell(10);  // for all members to finish a communicator

bool went_wrong(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

ncclDataType_t nccl_type(comm::DType dtype) {
  switch (dtype) {
    case comm::DType::kFloat32: return ncclFloat32;
    case comm::DType::kFloat64: return ncclFloat64;
    case comm::DType::kBFloat16: return ncclBfloat16;
  }
  SLUICE_ASSERT(false, "no NCCL type for a wire type");
}

// One of NCCL's communicators, non-blocking: a call may return before it has been carried out, and until it
// has been, only its state may be asked for. The mutex keeps the watcher away from the issuing thread's
// calls.
class Handle {
 public:
  Handle(std::string name, const ncclUniqueId& id, int members, int member) : name_(std::move(name)) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = name_.c_str();
    first_ = nccl_api().init(&comm_, members, id, member, &config);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { close(); }

  // Empty when all went well, else what went wrong. `issue` gets the communicator and returns its result.
  template <typename Issue>
  std::string call(const std::string& what, Clock::duration timeout, Issue issue) {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return base::text(what, " failed: the communicator has been aborted");
    last_ = what;
    const ncclResult_t result = issue(comm_);
    return went_wrong(result) ? describe(what, result) : settle(what, timeout);
  }

  // The end of what the constructor began.
  std::string join(Clock::duration timeout) {
    const std::string what = base::text("joining '", name_, "'");
    if (went_wrong(first_)) return base::text(what, " failed: ", nccl_api().error_string(first_));
    return call(what, timeout, [this](ncclComm_t) { return first_; });
  }

  // What has gone wrong since; empty while nothing has, or while the issuing thread is looking itself.
  std::string look() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || comm_ == nullptr) return "";
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_api().async_error(comm_, &state);
    const ncclResult_t result = went_wrong(asked) ? asked : state;
    return went_wrong(result) ? describe(last_, result) : "";
  }

  void cut_off() {
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) (void)nccl_api().abort(std::exchange(comm_, nullptr));
  }

 private:
  // Waits until NCCL has carried out the call. REQUIRES: the mutex is held.
  std::string settle(const std::string& what, Clock::duration timeout) {
    const Clock::time_point deadline = Clock::now() + timeout;
    ncclResult_t state = ncclInProgress;
    for (int64_t polls = 0;; ++polls) {
      const ncclResult_t asked = nccl_api().async_error(comm_, &state);
      if (went_wrong(asked)) return describe(what, asked);
      if (went_wrong(state)) return describe(what, state);
      if (state == ncclSuccess) return "";
      if (Clock::now() >= deadline) return base::text(what, " failed: NCCL was still busy at the timeout");
      if (polls > 1000) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::string describe(const std::string& what, ncclResult_t result) const {
    return base::text(what, " failed: ", nccl_api().error_string(result), " (", nccl_api().last_error(comm_),
                      ")");
  }

  // All members leave together; one that can't is cut off.
  void close() {
    const std::string fault = call(base::text("closing '", name_, "'"), kFarewell,
                                   [](ncclComm_t comm) { return nccl_api().finalize(comm); });
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    (void)(fault.empty() ? nccl_api().destroy(comm_) : nccl_api().abort(comm_));
    comm_ = nullptr;
  }

  std::string name_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;         // null once aborted
  ncclResult_t first_ = ncclSuccess;  // of the constructor's call
  std::string last_;                  // the operation issued last
};

// Every communicator of a transport, and the thread that watches them.
class Watch {
 public:
  Watch() : thread_([this] { run(); }) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(const std::shared_ptr<Handle>& handle) {
    const std::lock_guard lock(mutex_);
    std::erase_if(handles_, [](const std::weak_ptr<Handle>& each) { return each.expired(); });
    handles_.push_back(handle);
  }

  void check() {
    const std::lock_guard lock(mutex_);
    if (failure_) throw base::RunError(*failure_);
  }

  // Ends every communicator; the first failure is the one that is told. REQUIRES: no handle is locked by
  // this thread.
  void fail(const std::string& failure) {
    std::vector<std::shared_ptr<Handle>> handles;
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = failure;
      handles = alive();
    }
    for (const auto& handle : handles) handle->cut_off();
  }

 private:
  std::vector<std::shared_ptr<Handle>> alive() const {
    std::vector<std::shared_ptr<Handle>> handles;
    for (const std::weak_ptr<Handle>& each : handles_) {
      if (auto handle = each.lock()) handles.push_back(std::move(handle));
    }
    return handles;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kWatchPeriod, [this] { return stopping_; })) {
      std::vector<std::shared_ptr<Handle>> handles = alive();
      lock.unlock();
      for (const auto& handle : handles) {
        const std::string failure = handle->look();
        if (!failure.empty()) fail(failure);
      }
      handles.clear();  // the last reference may be ours; closing must not hold up the others
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::optional<std::string> failure_;
  std::vector<std::weak_ptr<Handle>> handles_;
  std::thread thread_;  // last: it uses the others
};

const std::byte* at(const void* data, int64_t offset) { return static_cast<const std::byte*>(data) + offset; }
std::byte* at(void* data, int64_t offset) { return static_cast<std::byte*>(data) + offset; }

class NcclCommunicator final : public comm::Communicator {
 public:
  NcclCommunicator(const std::string& name, const std::vector<int>& ranks, int member,
                   std::shared_ptr<Handle> handle, std::shared_ptr<Watch> watch,
                   const DeviceTransportOptions& options)
      : Communicator(name, ranks, member),
        handle_(std::move(handle)),
        watch_(std::move(watch)),
        device_(static_cast<c10::DeviceIndex>(options.device)),
        timeout_(options.issue_timeout_ns) {}

  comm::WorkPtr all_gather(const void* send, void* receive, int64_t bytes) override {
    return issue("all_gather", [&](ncclComm_t comm, cudaStream_t stream) {
      return nccl_api().all_gather(send, receive, static_cast<size_t>(bytes), ncclUint8, comm, stream);
    });
  }

  comm::WorkPtr reduce_scatter(const void* send, void* receive, int64_t count, comm::DType dtype) override {
    return issue("reduce_scatter", [&](ncclComm_t comm, cudaStream_t stream) {
      return nccl_api().reduce_scatter(send, receive, static_cast<size_t>(count), nccl_type(dtype), ncclSum,
                                       comm, stream);
    });
  }

  comm::WorkPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                           std::span<const int64_t> receive_bytes) override {
    const auto self = static_cast<size_t>(rank());
    SLUICE_ASSERT(send_bytes.size() == ranks().size() && receive_bytes.size() == ranks().size(),
                  base::text("all_to_all on '", name(), "' needs ", size(), " sizes on both sides"));
    SLUICE_ASSERT(send_bytes[self] == receive_bytes[self],
                  base::text("all_to_all on '", name(), "': a member's part for itself has two sizes"));
    std::vector<comm::Message> messages;
    int64_t sent = 0, received = 0;
    for (size_t member = 0; member < ranks().size(); ++member) {
      const int peer = static_cast<int>(member);
      if (member == self) {
        copy_own(at(receive, received), at(send, sent), send_bytes[self]);
      } else {
        messages.push_back({.send = at(send, sent), .bytes = send_bytes[member], .peer = peer});
        messages.push_back({.receive = at(receive, received), .bytes = receive_bytes[member], .peer = peer});
      }
      sent += send_bytes[member];
      received += receive_bytes[member];
    }
    return point_to_point("all_to_all", messages);
  }

  comm::WorkPtr exchange(std::span<const comm::Message> messages) override {
    for (const comm::Message& message : messages) {
      SLUICE_ASSERT(message.peer >= 0 && message.peer < size() && message.peer != rank(),
                    base::text("exchange on '", name(), "': member ", message.peer, " is no peer"));
    }
    return point_to_point("exchange", messages);
  }

 private:
  cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(device_).stream(); }

  void copy_own(void* to, const void* from, int64_t bytes) const {
    if (bytes == 0) return;
    cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream()),
               base::text("'", name(), "': copying this rank's own part"));
  }

  // One group of the messages that are not empty; without any, nothing is issued: NCCL matches point to
  // point by pair, so members without messages take no part.
  comm::WorkPtr point_to_point(const char* kind, std::span<const comm::Message> messages) {
    if (std::ranges::all_of(messages, [](const comm::Message& message) { return message.bytes == 0; })) {
      ++issued_;
      return comm::finished_work();
    }
    return issue(kind, [&](ncclComm_t comm, cudaStream_t stream) {
      const NcclApi& api = nccl_api();
      ncclResult_t worst = api.group_start();
      for (const comm::Message& message : messages) {
        if (message.bytes == 0) continue;
        const auto bytes = static_cast<size_t>(message.bytes);
        const ncclResult_t result =
            message.send != nullptr
                ? api.send(message.send, bytes, ncclUint8, message.peer, comm, stream)
                : api.receive(message.receive, bytes, ncclUint8, message.peer, comm, stream);
        if (!went_wrong(worst) && went_wrong(result)) worst = result;
      }
      const ncclResult_t ended = api.group_end();
      return went_wrong(worst) ? worst : ended;
    });
  }

  template <typename Operation>
  comm::WorkPtr issue(const char* kind, Operation operation) {
    watch_->check();
    const c10::cuda::CUDAGuard guard(device_);
    const std::string what = base::text("'", name(), "' #", issued_++, " ", kind);
    const std::string failure =
        handle_->call(what, timeout_, [&](ncclComm_t comm) { return operation(comm, stream()); });
    if (!failure.empty()) {
      watch_->fail(failure);
      watch_->check();
    }
    return comm::finished_work();
  }

  std::shared_ptr<Handle> handle_;
  std::shared_ptr<Watch> watch_;
  c10::DeviceIndex device_;
  std::chrono::nanoseconds timeout_;
  int64_t issued_ = 0;
};

class NcclTransport final : public comm::Transport {
 public:
  NcclTransport(std::unique_ptr<comm::Communicator> host_world, const DeviceTransportOptions& options)
      : host_world_(std::move(host_world)), options_(options), watch_(std::make_shared<Watch>()) {}

  int rank() const override { return host_world_->rank(); }
  int world_size() const override { return host_world_->size(); }
  void check() override { watch_->check(); }

  std::unique_ptr<comm::Communicator> communicator(const std::string& name,
                                                   const std::vector<int>& ranks) override {
    const auto found = std::find(ranks.begin(), ranks.end(), rank());
    SLUICE_ASSERT(found != ranks.end(), base::text("rank ", rank(), " is no member of '", name, "'"));
    const int member = static_cast<int>(found - ranks.begin());
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options_.device));
    const ncclUniqueId id = shared_id(name, ranks);
    auto handle = std::make_shared<Handle>(name, id, static_cast<int>(ranks.size()), member);
    const std::string failure = handle->join(std::chrono::nanoseconds(options_.join_timeout_ns));
    if (!failure.empty()) {
      handle->cut_off();
      throw base::RunError(failure);
    }
    watch_->add(handle);
    return std::make_unique<NcclCommunicator>(name, ranks, member, std::move(handle), watch_, options_);
  }

 private:
  // The first member makes the id and gives it to the others. All ranks make communicators in one order, so
  // the ids between two ranks arrive in order too.
  ncclUniqueId shared_id(const std::string& name, const std::vector<int>& ranks) {
    ncclUniqueId id{};
    const int64_t bytes = sizeof id;
    if (rank() != ranks.front()) {
      host_world_->receive(&id, bytes, ranks.front())->wait();
      return id;
    }
    const ncclResult_t result = nccl_api().get_unique_id(&id);
    if (went_wrong(result)) {
      throw base::RunError(base::text("joining '", name, "' failed: ", nccl_api().error_string(result)));
    }
    std::vector<comm::Message> messages;
    for (const int other : ranks) {
      if (other != rank()) messages.push_back({.send = &id, .bytes = bytes, .peer = other});
    }
    host_world_->exchange(messages)->wait();
    return id;
  }

  std::unique_ptr<comm::Communicator> host_world_;
  DeviceTransportOptions options_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace

std::unique_ptr<comm::Transport> nccl_transport(std::unique_ptr<comm::Communicator> host_world,
                                                const DeviceTransportOptions& options) {
  return std::make_unique<NcclTransport>(std::move(host_world), options);
}

}  // namespace sluice::transport
