// NCCL's communicators as owned things, and the watch over them. Only *_cuda.cpp files include this.
//
// They call NCCL through an NcclApi, so that tests hand in one that fails as a network does.
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

// One of NCCL's communicators, non-blocking: a call may return before it has been carried out, and until it
// has been, only its state may be asked for. The mutex keeps the watcher away from the issuing thread's
// calls.
class NcclHandle {
 public:
  using Duration = std::chrono::steady_clock::duration;

  struct Options {
    std::string name;
    int members = 1;
    int member = 0;
    int most_blocks = 0;  // of its kernels; 0: as many as NCCL likes
  };
  // Begins to join; join() waits for the end. `api` outlives the handle.
  NcclHandle(const NcclApi& api, Options options, const ncclUniqueId& id);
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;
  ~NcclHandle();

  // Empty when all went well, else what went wrong.
  std::string join(Duration timeout);
  // `issue` gets the communicator and returns its result; then waits until NCCL has carried it out.
  template <typename Issue>
  std::string call(const std::string& what, Duration timeout, Issue issue) {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return gone(what);
    last_ = what;
    const ncclResult_t result = issue(comm_);
    return went_wrong(result) ? describe(what, result) : settle(what, timeout);
  }

  // What has gone wrong since; empty while nothing has, or while the issuing thread is looking itself.
  std::string look();

  // Ends every communicator of the list that is still there, together: an abort frees memory, which waits for
  // the kernels of the others on the same GPU, so one after the other they would wait for each other's peers.
  // A call that waits for NCCL on another thread gives up first. REQUIRES: no handle is locked by this
  // thread.
  static void cut_off(const std::vector<std::shared_ptr<NcclHandle>>& handles);

 private:
  std::string settle(const std::string& what, Duration timeout);
  std::string describe(const std::string& what, ncclResult_t result) const;
  std::string gone(const std::string& what) const;
  void close();

  const NcclApi& api_;
  std::string name_;
  std::mutex mutex_;
  std::atomic<bool> giving_up_{false};  // cut_off wants the mutex
  ncclComm_t comm_ = nullptr;           // null once aborted
  ncclResult_t first_ = ncclSuccess;    // of the constructor's call
  std::string last_;                    // the operation issued last
};

// Every communicator of a transport, and the thread that watches them.
class NcclWatch {
 public:
  NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;
  ~NcclWatch();

  void add(const std::shared_ptr<NcclHandle>& handle);
  // Throws RunError of the first failure.
  void check();
  // Ends every communicator; the first failure is the one that is told. REQUIRES: no handle is locked by this
  // thread.
  void fail(const std::string& failure);

 private:
  std::vector<std::shared_ptr<NcclHandle>> alive() const;
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::optional<std::string> failure_;
  std::vector<std::weak_ptr<NcclHandle>> handles_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace sluice::transport
