// Owning wrappers for NCCL communicators, and a thread that watches them. Only *_cuda.cpp files include this.
//
// They call NCCL through an NcclApi, so that tests can pass one that fails like a network.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/nccl_api.h"

namespace sluice::transport {

inline bool went_wrong(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

// One NCCL communicator, non-blocking: a call may return before NCCL has carried it out; until then
// only its state may be queried. The mutex keeps the watcher thread out while the issuing thread makes
// calls.
class NcclHandle {
 public:
  using Duration = std::chrono::steady_clock::duration;

  struct Options {
    std::string name;
    int members = 1;
    int member = 0;
    int most_blocks = 0;  // thread blocks of its kernels; 0: NCCL decides
  };
  // Begins to join; join() waits for completion. `api` outlives the handle.
  NcclHandle(const NcclApi& api, Options options, const ncclUniqueId& id);
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;
  ~NcclHandle();

  // Empty on success, otherwise the error.
  std::string join(Duration timeout);
  // Passes the communicator to `issue`, then waits until NCCL has carried out the call. Empty, or the error.
  template <typename Issue>
  std::string call(const std::string& what, Duration timeout, Issue issue) {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return gone(what);
    last_ = what;
    const ncclResult_t result = issue(comm_);
    return went_wrong(result) ? describe(what, result) : settle(what, timeout);
  }

  // Finalizes the communicator together with its other members, or aborts it if they don't come. Members
  // close communicators in one order, so the thread that issues operations calls this, however long the
  // watcher keeps a reference.
  void close();

  // The error since the last call, if any. Empty also while the issuing thread holds the mutex.
  std::string look();

  // Aborts all remaining communicators of the list as one group. An abort frees memory and for that waits for
  // all kernels on the GPU, also those of other communicators: in sequence, they would wait for each other's
  // peers. Calls that wait for NCCL on other threads give up first. REQUIRES: this thread holds no handle's
  // mutex.
  static void cut_off(const std::vector<std::shared_ptr<NcclHandle>>& handles);

 private:
  std::string settle(const std::string& what, Duration timeout);
  std::string describe(const std::string& what, ncclResult_t result) const;
  std::string gone(const std::string& what) const;

  const NcclApi& api_;
  std::string name_;
  std::mutex mutex_;
  std::atomic<bool> giving_up_{false};  // set by cut_off, which waits for the mutex
  ncclComm_t comm_ = nullptr;           // null once aborted
  ncclResult_t first_ = ncclSuccess;    // result of the constructor's call
  std::string last_;                    // the operation issued last
};

// All communicators of a transport, and the thread that watches them.
class NcclWatch {
 public:
  NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;
  ~NcclWatch();

  void add(const std::shared_ptr<NcclHandle>& handle);
  // Throws RunError with the first failure, if any.
  void check();
  // Aborts every communicator. check() reports the first failure only. REQUIRES: this thread holds no
  // handle's mutex.
  void fail(const std::string& failure);

 private:
  std::vector<std::shared_ptr<NcclHandle>> alive() const;
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::optional<std::string> failure_;
  std::vector<std::weak_ptr<NcclHandle>> handles_;
  std::thread thread_;  // last: the thread uses the members above
};

}  // namespace sluice::transport
