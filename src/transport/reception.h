// The door to listening sockets of ours: only ranks of the same run get in.
//
// Who connects gets a challenge, answers with its rank and a proof that it knows the run's key, and is given
// one in return, so neither side talks to a stranger and no secret crosses the network. Strangers cost
// little: whoever is slow with its answer is dropped after its own deadline, the number of those who have not
// answered yet is bounded, and nobody waits for them.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "transport/run_key.h"
#include "transport/socket.h"

namespace sluice::transport {

struct Guest {
  int rank = 0;
  Socket socket;
};

// Not thread-safe.
class Reception {
 public:
  struct Options {
    int64_t answer_ns = 5'000'000'000;  // for a newcomer to answer its challenge
    int most_strangers = 64;            // beside the run's own ranks, of those who have not answered yet
  };
  // `purpose` separates the doors of one run ("store", "heartbeat"): an answer opens one kind only.
  Reception(std::vector<Socket> listeners, RunKey key, std::string purpose, Options options);

  // Nobody else is let in. Who waits for an answer is cut off.
  void close();

  // Adds what poll should wait for.
  void watch(std::vector<pollfd>& entries) const;
  // How long it may wait at most before the next deadline.
  int64_t patience_ns() const;
  // Accepts, reads and answers without blocking; who has just proved to be a rank. A rank is let in once.
  std::vector<Guest> serve();

 private:
  using Clock = std::chrono::steady_clock;
  struct Newcomer {
    Socket socket;
    std::string challenge;
    std::string received;
    Clock::time_point deadline;
  };

  void accept_newcomers();
  bool accept_at(const Socket& listener);
  bool answer(Newcomer& newcomer, std::vector<Guest>& guests);

  std::vector<Socket> listeners_;  // none once the door is shut
  RunKey key_;
  std::string purpose_;
  Options options_;
  std::vector<Newcomer> newcomers_;  // in the order they came
  std::set<int> let_in_;
  Clock::time_point resume_accepting_;  // after the process ran out of descriptors
};

// The other side: connects and is let in as `rank`, trying again until the timeout. Unreachable when
// nobody answers in time, RunError when whoever does belongs to another run or has this rank already.
Socket enter(const std::string& address, int port, const RunKey& key, const std::string& purpose, int rank,
             int64_t timeout_ns);

}  // namespace sluice::transport
