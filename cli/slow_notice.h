// Notices for waiting users: work without a progress count of its own is still running.
#pragma once

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>

#include "base/text.h"

namespace sluice::cli {

// Prints a line on stderr, "still WHAT after 6 s: HOW FAR", a while after construction and then now and then
// until it is destroyed.
class SlowNotice {
 public:
  explicit SlowNotice(std::string what, std::chrono::seconds every = std::chrono::seconds(3))
      : thread_([this, what = std::move(what), every] {
          std::unique_lock lock(mutex_);
          for (auto waited = every; !over_.wait_for(lock, every, [this] { return ended_; }); waited += every)
            std::cerr << base::text("sluice: still ", what, " after ", waited.count(), " s",
                                    how_far_.empty() ? "" : ": ", how_far_, "\n");
        }) {}
  ~SlowNotice() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  // From any thread.
  void tell(std::string how_far) {
    const std::lock_guard lock(mutex_);
    how_far_ = std::move(how_far);
  }
  SlowNotice(const SlowNotice&) = delete;
  SlowNotice& operator=(const SlowNotice&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool ended_ = false;
  std::string how_far_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace sluice::cli
