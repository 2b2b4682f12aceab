// Measures how long a rank waits for others, and for which rank.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/transport.h"

namespace sluice::comm {

// The waits of all operations on this clock so far, including transfers. Only the single thread that waits
// writes to it.
struct WaitClock {
  int64_t waited_ns = 0;
  // World rank that the last operation waited for longest; −1: none, or unknown.
  int awaited_rank = -1;
};

// The same communicator, with the waits of its operations counted on `clock`. Device transports only order an
// operation before later work of a stream, so they have no waits to count. Null stays null.
std::unique_ptr<Communicator> counting_waits(std::unique_ptr<Communicator> inner,
                                             std::shared_ptr<WaitClock> clock);

}  // namespace sluice::comm
