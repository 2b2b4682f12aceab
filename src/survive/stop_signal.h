// Turns stop signals (base/stop_signals.h) into a flag that the trainer checks between steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

namespace sluice::survive {

// Blocks the signals in this thread, and so in all threads created later, and collects them on its own
// thread. They stay blocked behind its end if one came, or if an exception ends it. One instance per process
// at a time.
//
// One request to stop often arrives as several signals: timeout, systemd and Slurm signal a whole process
// group, and the launcher in it forwards the signal to its ranks. So signals close together count as one.
class StopSignal {
 public:
  struct Options {
    int64_t again_ns = 3'000'000'000;
    bool deferring = false;  // as if defer() were called before the first signal can arrive
  };
  // `end_now` is called on that thread for a signal that cannot wait for requested(): one before defer(), or
  // one `again_ns` or more after the first.
  explicit StopSignal(std::function<void()> end_now) : StopSignal(std::move(end_now), Options()) {}
  StopSignal(std::function<void()> end_now, Options options);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // From now on, the first signal only sets requested().
  void defer() { deferring_ = true; }
  // Acts as if a signal had arrived, for one that another rank received. REQUIRES: defer() was called.
  void request();
  // Whether a signal has arrived so far.
  bool requested() const { return requested_; }

 private:
  void watch();

  const std::function<void()> end_now_;
  const int64_t again_ns_;
  std::atomic<bool> deferring_;
  std::atomic<bool> requested_ = false;
  std::atomic<int64_t> first_ns_ = 0;  // when it was requested, by the steady clock
  int signals_ = -1;                   // signalfd
  int ending_ = -1;                    // eventfd: the destructor was called
  std::thread thread_;
};

}  // namespace sluice::survive
