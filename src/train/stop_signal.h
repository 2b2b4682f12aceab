// SIGTERM and SIGINT as a question that the trainer asks between steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace sluice::train {

// Blocks the two signals in this thread, and so in all threads made later, and collects them on a thread of
// its own. One at a time a process.
//
// One wish to stop often arrives as several signals: who signals a whole process group (timeout, systemd,
// Slurm) reaches the ranks and their launcher, which passes it on. So signals close together are one.
class StopSignal {
 public:
  // `end_now` is called, on that thread, for a signal that nobody will ask about: one that comes before
  // defer(), or `again_ns` or more after the first.
  explicit StopSignal(std::function<void()> end_now, int64_t again_ns = 3'000'000'000);
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
  std::atomic<bool> deferring_ = false;
  std::atomic<bool> requested_ = false;
  std::atomic<int64_t> first_ns_ = 0;  // of the steady clock: when it was requested
  int signals_ = -1;                   // signalfd
  int ending_ = -1;                    // eventfd: the destructor is called
  std::thread thread_;
};

}  // namespace sluice::train
