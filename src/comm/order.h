// Orders from member 0 of a communicator to all others: the work to do next.
#pragma once

#include <cstdint>
#include <string>

#include "comm/transport.h"

namespace sluice::comm {

struct Order {
  int64_t kind = 0;  // a number that both sides agree on
  std::string text;
};

// Sends from member 0, in host memory; each call matches one receive_order() of every other member. Both
// throw the communicator's errors.
void send_order(Communicator& members, const Order& order);
Order receive_order(Communicator& members);

}  // namespace sluice::comm
