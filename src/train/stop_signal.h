// SIGTERM and SIGINT as a question the trainer asks between steps.
#pragma once

namespace sluice::train {

// Blocks the two signals in this thread, and so in all threads made later, and collects them. One at a time
// a process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Whether either has arrived so far.
  bool requested();

 private:
  int descriptor_ = -1;
  bool requested_ = false;
};

}  // namespace sluice::train
