// Counting what a rank waits for others, and for whom.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/transport.h"

namespace sluice::comm {

// What operations waited since it was made, transfers included. Written by the thread that waits, which is
// one thread.
struct WaitClock {
  int64_t waited_ns = 0;
  // World rank of whom the last operation waited for longest; −1: nobody, or nobody knows.
  int awaited_rank = -1;
};

// The same communicator, whose operations count their waits on `clock`. Where an operation is only ordered
// before later work of a stream (device transports) there is nothing to count. Null stays null.
std::unique_ptr<Communicator> counting_waits(std::unique_ptr<Communicator> inner,
                                             std::shared_ptr<WaitClock> clock);

}  // namespace sluice::comm
