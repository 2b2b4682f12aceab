// Authenticates connections to our listening sockets: only ranks of the same run are admitted.
//
// A connecting process gets a challenge, answers with its rank and a proof that it knows the run's key, and
// gets such a proof in return. So neither side trusts a stranger, and no secret crosses the network.
// Strangers cost little: each unanswered challenge has its own deadline, their number is bounded, and the
// server never blocks on them. A rank is admitted once.
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
    int64_t answer_ns = 5'000'000'000;  // time to answer a challenge
    int most_strangers = 64;            // maximum of unanswered challenges, in addition to the run's ranks
  };
  // `purpose` ("store", "heartbeat") separates the listeners of a run: an answer is valid for one only.
  Reception(std::vector<Socket> listeners, RunKey key, std::string purpose, Options options);

  // Admits no more ranks and drops connections that have not answered.
  void close();

  // Adds what poll() should wait for.
  void watch(std::vector<pollfd>& entries) const;
  // How long poll() may wait before the next deadline.
  int64_t patience_ns() const;
  // Accepts, reads and answers without blocking. Returns newly admitted ranks; each rank is admitted once.
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

  std::vector<Socket> listeners_;  // empty after close()
  RunKey key_;
  std::string purpose_;
  Options options_;
  std::vector<Newcomer> newcomers_;  // in order of arrival
  std::set<int> let_in_;
  Clock::time_point resume_accepting_;  // a pause after the process ran out of descriptors
};

// The other side: connects and is admitted as `rank`; retries until the timeout. Throws Unreachable if no
// answer comes in time, RunError if the listener belongs to another run or already has this rank.
Socket enter(const std::string& address, int port, const RunKey& key, const std::string& purpose, int rank,
             int64_t timeout_ns);

}  // namespace sluice::transport
