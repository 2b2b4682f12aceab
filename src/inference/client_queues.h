// Waiting sequences in one queue per client, and the tokens that each client has been
// served. The policy is virtual token counters (Sheng et al., Fairness in Serving
// Large Language Models, 2024): deficit round robin with a quantum of one token. The
// client that has been served the fewest tokens comes next, so a client's share does
// not grow with its number of requests. A single client is first come, first served.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace sluice::inference {

class ClientQueues {
 public:
  // Appends a waiting sequence to the client's queue. A client without sequences starts with the counter of
  // the least served client: idle time earns no credit.
  void add(int64_t client, int64_t sequence);
  // The front of the client's queue starts running.
  void start(int64_t client);
  // A running sequence of the client waits again, in front of the client's queue.
  void preempt(int64_t client, int64_t sequence);
  void finish_running(int64_t client);
  void remove_waiting(int64_t client, int64_t sequence);

  // Counts tokens that the model computes for the client.
  void charge(int64_t client, int64_t tokens) { at(client).served_tokens += tokens; }

  int64_t waiting() const { return waiting_; }
  int64_t waiting_of(int64_t client) const { return std::ssize(clients_.at(client).waiting); }
  std::map<int64_t, int64_t> waiting_by_client() const;
  int64_t front(int64_t client) const { return clients_.at(client).waiting.front(); }
  const std::deque<int64_t>& waiting_sequences_of(int64_t client) const {
    return clients_.at(client).waiting;
  }
  int64_t running_of(int64_t client) const { return clients_.at(client).running; }

  // Clients with sequences, the least served first;
  // ties go to the client with fewer running sequences.
  std::vector<int64_t> least_served_first() const;
  bool has_one_client() const { return clients_.size() < 2; }

 private:
  struct Client {
    int64_t served_tokens = 0;
    int64_t running = 0;  // sequences
    std::deque<int64_t> waiting;
  };
  Client& at(int64_t client) { return clients_.at(client); }
  void erase_without_sequences(int64_t client);

  std::map<int64_t, Client> clients_;
  int64_t waiting_ = 0;  // over all clients
};

}  // namespace sluice::inference
