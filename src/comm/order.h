// What one member of a communicator tells all others to do next.
#pragma once

#include <cstdint>
#include <string>

#include "comm/transport.h"

namespace sluice::comm {

struct Order {
  int64_t kind = 0;  // that sender and receivers agree on
  std::string text;
};

// From member 0, on host memory; each call meets one receive_order() of every other member. Both throw what
// the communicator throws.
void send_order(Communicator& members, const Order& order);
Order receive_order(Communicator& members);

}  // namespace sluice::comm
