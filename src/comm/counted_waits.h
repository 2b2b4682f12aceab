// Measures how long a rank waits for others, and for which rank.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/transport.h"

namespace sluice::comm {

// Times what the current stream of a device does between two calls: the host sees no waits there.
class StreamTimer {
 public:
  virtual ~StreamTimer() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
};

// The waits of all operations on this clock so far, including transfers. Only the single thread that waits
// writes to it.
struct WaitClock {
  int64_t waited_ns = 0;  // with a timer: once its owner has added what streams took
  // World rank that the last operation waited for longest; −1: none, or unknown.
  int awaited_rank = -1;
  std::unique_ptr<StreamTimer> timer = nullptr;  // of a device's waits; null: the host waits
};

// The same communicator, with the waits of its operations counted on `clock`. Device transports only order an
// operation before later work of a stream: the clock's timer then times the operation and the stream's wait
// for it. Null stays null.
std::unique_ptr<Communicator> counting_waits(std::unique_ptr<Communicator> inner,
                                             std::shared_ptr<WaitClock> clock);

}  // namespace sluice::comm
