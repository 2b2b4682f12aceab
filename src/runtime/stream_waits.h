// Waits of a device's compute stream for other ranks, by two events around each: the host issues work and
// sees none of them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "comm/counted_waits.h"

namespace sluice::runtime {

// Used by the thread that issues a step's work.
class StreamWaits {
 public:
  explicit StreamWaits(const c10::Device& device) : device_(device) {}

  // Counts the clocks' waits as long as it lives. REQUIRES: the clocks live longer.
  class Counting {
   public:
    Counting(StreamWaits& waits, std::vector<comm::WaitClock*> clocks);
    ~Counting();
    Counting(const Counting&) = delete;
    Counting& operator=(const Counting&) = delete;

   private:
    std::vector<comm::WaitClock*> clocks_;
  };

  // Forgets the waits so far. From now on those of this stream count; transfers on streams beside it do not
  // keep it, until it waits for them.
  void begin_step(const c10::Stream& stream);

  size_t waits() const { return used_; }  // begun in this step
  // Adds the waits from `first` to `last` to their clocks. Returns their sum in nanoseconds. REQUIRES: the
  // stream's work is done.
  int64_t settle(size_t first, size_t last) const;

 private:
  class Timer;
  struct Wait {
    c10::Event begin, end;
    comm::WaitClock* clock = nullptr;
  };
  bool counts_now() const;

  c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::deque<Wait> all_;  // events are reused from step to step
  size_t used_ = 0;
};

}  // namespace sluice::runtime
