// Texts that wait, a queue for each client, and how much each client has been served: virtual token counters
// (Sheng et al., Fairness in Serving Large Language Models, 2024), which is deficit round robin with a
// quantum of one token. The client that has been served the fewest tokens comes next, so a client's share
// does not grow with its requests. Without another client a queue is first come, first served.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace sluice::inference {

class ClientQueues {
 public:
  // A text that waits behind its client's others. A client that had none counts as served as much as the
  // least served of the others: nobody saves up for later.
  void add(int64_t client, int64_t text);
  // A text is under way, waits again in front of its client's others, or has ended, wherever it was.
  void begin(int64_t client);  // the first of the client
  void put_off(int64_t client, int64_t text);
  void end_running(int64_t client);
  void end_waiting(int64_t client, int64_t text);

  // Counts tokens of the client that go through the model.
  void serve(int64_t client, int64_t tokens) { at(client).served += tokens; }

  int64_t waiting() const { return waiting_; }
  int64_t waiting_of(int64_t client) const { return std::ssize(clients_.at(client).waiting); }
  std::map<int64_t, int64_t> waiting_by_client() const;
  int64_t first_of(int64_t client) const { return clients_.at(client).waiting.front(); }
  const std::deque<int64_t>& waiting_texts_of(int64_t client) const { return clients_.at(client).waiting; }
  int64_t running_of(int64_t client) const { return clients_.at(client).running; }

  // Clients that have texts, the least served first; of those the one with fewer texts under way.
  std::vector<int64_t> in_turn() const;
  bool has_one_client() const { return clients_.size() < 2; }

 private:
  struct Client {
    int64_t served = 0;   // tokens
    int64_t running = 0;  // texts under way
    std::deque<int64_t> waiting;
  };
  Client& at(int64_t client) { return clients_.at(client); }
  void forget_without_texts(int64_t client);

  std::map<int64_t, Client> clients_;
  int64_t waiting_ = 0;  // texts of all
};

}  // namespace sluice::inference
