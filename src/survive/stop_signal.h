// Signals to stop (base/stop_signals.h) as a question that the trainer asks between steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

namespace sluice::survive {

// Blocks the signals in this thread, and so in all threads made later, and collects them on a thread of
// its own. One at a time a process.
//
// One wish to stop often arrives as several signals: who signals a whole process group (timeout, systemd,
// Slurm) reaches the ranks and their launcher, which passes it on. So signals close together are one.
class StopSignal {
 public:
  struct Options {
    int64_t again_ns = 3'000'000'000;
    bool deferring = false;  // as if defer() were called before the first signal can arrive
  };
  // `end_now` is called, on that thread, for a signal that nobody will ask about: one that comes before
  // defer(), or `again_ns` or more after the first.
  explicit StopSignal(std::function<void()> end_now) : StopSignal(std::move(end_now), Options()) {}
  StopSignal(std::function<void()> end_now, Options options);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // From now on the first signal waits to be asked about.
  void defer() { deferring_ = true; }
  // As if one had arrived, which somebody else received. REQUIRES: defer() was called.
  void request();
  // Whether one has arrived so far.
  bool requested() const { return requested_; }

 private:
  void watch();

  const std::function<void()> end_now_;
  const int64_t again_ns_;
  std::atomic<bool> deferring_;
  std::atomic<bool> requested_ = false;
  std::atomic<int64_t> first_ns_ = 0;  // of the steady clock: when it was requested
  int signals_ = -1;                   // signalfd
  int ending_ = -1;                    // eventfd: the destructor is called
  std::thread thread_;
};

}  // namespace sluice::survive
