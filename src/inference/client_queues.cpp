#include "inference/client_queues.h"

#include <algorithm>
#include <tuple>

namespace sluice::inference {

void ClientQueues::add(int64_t client, int64_t text) {
  if (!clients_.contains(client)) {
    const auto least =
        std::ranges::min_element(clients_, {}, [](const auto& each) { return each.second.served; });
    const int64_t served = least == clients_.end() ? 0 : least->second.served;
    clients_[client].served = served;
  }
  at(client).waiting.push_back(text);
  ++waiting_;
}

void ClientQueues::begin(int64_t client) {
  at(client).waiting.pop_front();
  ++at(client).running;
  --waiting_;
}

void ClientQueues::put_off(int64_t client, int64_t text) {
  --at(client).running;
  at(client).waiting.push_front(text);
  ++waiting_;
}

void ClientQueues::end_running(int64_t client) {
  --at(client).running;
  forget_without_texts(client);
}

void ClientQueues::end_waiting(int64_t client, int64_t text) {
  waiting_ -= static_cast<int64_t>(std::erase(at(client).waiting, text));
  forget_without_texts(client);
}

void ClientQueues::forget_without_texts(int64_t client) {
  if (at(client).running == 0 && at(client).waiting.empty()) clients_.erase(client);
}

std::map<int64_t, int64_t> ClientQueues::waiting_by_client() const {
  std::map<int64_t, int64_t> waiting;
  for (const auto& [client, own] : clients_) waiting[client] = std::ssize(own.waiting);
  return waiting;
}

std::vector<int64_t> ClientQueues::in_turn() const {
  std::vector<int64_t> order;
  for (const auto& [client, own] : clients_) order.push_back(client);
  std::ranges::stable_sort(order, {}, [&](int64_t client) {
    const Client& own = clients_.at(client);
    return std::tuple(own.served, own.running);
  });
  return order;
}

}  // namespace sluice::inference
