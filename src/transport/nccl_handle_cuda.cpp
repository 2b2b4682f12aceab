#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "transport/nccl_handle.h"

namespace sluice::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWatchPeriod(100);
constexpr std::chrono::seconds kFarewell(10);  // for all members to finish a communicator

}  // namespace

NcclHandle::NcclHandle(const NcclApi& api, Options options, const ncclUniqueId& id)
    : api_(api), name_(std::move(options.name)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name_.c_str();
  if (options.most_blocks > 0) config.maxCTAs = options.most_blocks;
  first_ = api_.init(&comm_, options.members, id, options.member, &config);
}

NcclHandle::~NcclHandle() { close(); }

std::string NcclHandle::join(Duration timeout) {
  const std::string what = base::text("joining '", name_, "'");
  if (went_wrong(first_)) return base::text(what, " failed: ", api_.error_string(first_));
  return call(what, timeout, [this](ncclComm_t) { return first_; });
}

std::string NcclHandle::look() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || comm_ == nullptr) return "";
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = api_.async_error(comm_, &state);
  const ncclResult_t result = went_wrong(asked) ? asked : state;
  return went_wrong(result) ? describe(last_, result) : "";
}

void NcclHandle::cut_off(const std::vector<std::shared_ptr<NcclHandle>>& handles) {
  if (handles.empty()) return;
  for (const auto& handle : handles) handle->giving_up_ = true;
  std::vector<std::unique_lock<std::mutex>> locks;
  for (const auto& handle : handles) locks.emplace_back(handle->mutex_);
  const NcclApi& api = handles.front()->api_;
  (void)api.group_start();
  for (const auto& handle : handles) {
    if (handle->comm_ != nullptr) (void)api.abort(std::exchange(handle->comm_, nullptr));
  }
  (void)api.group_end();
}

// Waits until NCCL has carried out the call. Returns the error, if any. REQUIRES: the mutex is held.
std::string NcclHandle::settle(const std::string& what, Duration timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  ncclResult_t state = ncclInProgress;
  for (int64_t polls = 0;; ++polls) {
    const ncclResult_t asked = api_.async_error(comm_, &state);
    if (went_wrong(asked)) return describe(what, asked);
    if (went_wrong(state)) return describe(what, state);
    if (state == ncclSuccess) return "";
    if (giving_up_) return gone(what);
    if (Clock::now() >= deadline) return base::text(what, " failed: NCCL was still busy at the timeout");
    if (polls > 1000) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::string NcclHandle::describe(const std::string& what, ncclResult_t result) const {
  return base::text(what, " failed: ", api_.error_string(result), " (", api_.last_error(comm_), ")");
}

std::string NcclHandle::gone(const std::string& what) const {
  return base::text(what, " failed: the communicator has been aborted");
}

void NcclHandle::close() {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
  }
  const std::string fault = call(base::text("closing '", name_, "'"), kFarewell,
                                 [this](ncclComm_t comm) { return api_.finalize(comm); });
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  (void)(fault.empty() ? api_.destroy(comm_) : api_.abort(comm_));
  comm_ = nullptr;
}

NcclWatch::NcclWatch() : thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::add(const std::shared_ptr<NcclHandle>& handle) {
  const std::lock_guard lock(mutex_);
  std::erase_if(handles_, [](const std::weak_ptr<NcclHandle>& each) { return each.expired(); });
  handles_.push_back(handle);
}

void NcclWatch::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw base::RunError(*failure_);
}

void NcclWatch::fail(const std::string& failure) {
  std::vector<std::shared_ptr<NcclHandle>> handles;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
    handles = alive();
  }
  NcclHandle::cut_off(handles);
}

std::vector<std::shared_ptr<NcclHandle>> NcclWatch::alive() const {
  std::vector<std::shared_ptr<NcclHandle>> handles;
  for (const std::weak_ptr<NcclHandle>& each : handles_) {
    if (auto handle = each.lock()) handles.push_back(std::move(handle));
  }
  return handles;
}

void NcclWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kWatchPeriod, [this] { return stopping_; })) {
    std::vector<std::shared_ptr<NcclHandle>> handles = alive();
    lock.unlock();
    for (const auto& handle : handles) {
      const std::string failure = handle->look();
      if (!failure.empty()) fail(failure);
    }
    handles.clear();  // before the lock: ours may be the last reference
    lock.lock();
  }
}

}  // namespace sluice::transport
