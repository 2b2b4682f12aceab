#include "comm/order.h"

#include <vector>

namespace sluice::comm {
namespace {

struct Head {
  int64_t kind = 0;
  int64_t bytes = 0;  // size of the text that follows
};

}  // namespace

void send_order(Communicator& members, const Order& order) {
  const Head head{order.kind, static_cast<int64_t>(order.text.size())};
  std::vector<Message> heads, texts;
  for (int member = 1; member < members.size(); ++member) {
    heads.push_back({.send = &head, .bytes = sizeof head, .peer = member});
    texts.push_back({.send = order.text.data(), .bytes = head.bytes, .peer = member});
  }
  members.exchange(heads)->wait();
  if (head.bytes > 0) members.exchange(texts)->wait();
}

Order receive_order(Communicator& members) {
  Head head;
  members.receive(&head, sizeof head, 0)->wait();
  Order order{head.kind, std::string(static_cast<size_t>(head.bytes), ' ')};
  if (head.bytes > 0) members.receive(order.text.data(), head.bytes, 0)->wait();
  return order;
}

}  // namespace sluice::comm
