// SIGTERM and SIGINT as a question that the trainer asks between steps.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace sluice::train {

// Blocks the two signals in this thread, and so in all threads made later, and collects them on a thread of
// its own. One at a time a process.
class StopSignal {
 public:
  // `end_now` is called, on that thread, for a signal that nobody will ask about: one that comes before
  // defer() or a second one.
  explicit StopSignal(std::function<void()> end_now);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // From now on the first signal waits to be asked about.
  void defer() { deferring_ = true; }
  // Whether one has arrived so far.
  bool requested() const { return requested_; }

 private:
  void watch();

  std::function<void()> end_now_;
  std::atomic<bool> deferring_ = false;
  std::atomic<bool> requested_ = false;
  int signals_ = -1;  // signalfd
  int ending_ = -1;   // eventfd: the destructor is called
  std::thread thread_;
};

}  // namespace sluice::train
