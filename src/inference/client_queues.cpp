#include "inference/client_queues.h"

#include <algorithm>
#include <tuple>

namespace sluice::inference {

void ClientQueues::add(int64_t client, int64_t sequence) {
  if (!clients_.contains(client)) {
    const auto least =
        std::ranges::min_element(clients_, {}, [](const auto& each) { return each.second.served_tokens; });
    const int64_t served = least == clients_.end() ? 0 : least->second.served_tokens;
    clients_[client].served_tokens = served;
  }
  at(client).waiting.push_back(sequence);
  ++waiting_;
}

void ClientQueues::start(int64_t client) {
  at(client).waiting.pop_front();
  ++at(client).running;
  --waiting_;
}

void ClientQueues::preempt(int64_t client, int64_t sequence) {
  --at(client).running;
  at(client).waiting.push_front(sequence);
  ++waiting_;
}

void ClientQueues::finish_running(int64_t client) {
  --at(client).running;
  erase_without_sequences(client);
}

void ClientQueues::remove_waiting(int64_t client, int64_t sequence) {
  waiting_ -= static_cast<int64_t>(std::erase(at(client).waiting, sequence));
  erase_without_sequences(client);
}

void ClientQueues::erase_without_sequences(int64_t client) {
  if (at(client).running == 0 && at(client).waiting.empty()) clients_.erase(client);
}

std::map<int64_t, int64_t> ClientQueues::waiting_by_client() const {
  std::map<int64_t, int64_t> waiting;
  for (const auto& [client, own] : clients_) waiting[client] = std::ssize(own.waiting);
  return waiting;
}

std::vector<int64_t> ClientQueues::least_served_first() const {
  std::vector<int64_t> order;
  for (const auto& [client, own] : clients_) order.push_back(client);
  std::ranges::stable_sort(order, {}, [&](int64_t client) {
    const Client& own = clients_.at(client);
    return std::tuple(own.served_tokens, own.running);
  });
  return order;
}

}  // namespace sluice::inference
