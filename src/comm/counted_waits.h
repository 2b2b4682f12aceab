// Counting what a rank waits for others inside of its operations.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/transport.h"

namespace sluice::comm {

// How long wait() took, transfers included, since it was made. Written by the thread that waits.
struct WaitClock {
  int64_t waited_ns = 0;
};

// The same communicator, whose operations count their waits on `clock`. Where an operation is only ordered
// before later work of a stream (device transports) there is nothing to count. Null stays null.
std::unique_ptr<Communicator> counting_waits(std::unique_ptr<Communicator> inner,
                                             std::shared_ptr<WaitClock> clock);

}  // namespace sluice::comm
