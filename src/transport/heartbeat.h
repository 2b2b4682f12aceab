// Failure detection: a thread watches extra sockets between ranks, because a Gloo group notices a lost peer
// only during an operation with it.
//
// Ranks 0 and 1 are hubs: every rank is connected to both. So a hub sees the death of any rank at once as
// end-of-file (a hub's death shows everywhere), and a freeze as missing beats. The first rank to notice a
// loss forwards the news before doing anything else. News in messages precedes end-of-files that are seen at
// the same time. So all ranks name the one that was lost first, not those that ended because of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/transport.h"
#include "transport/run_key.h"

namespace sluice::transport {

struct LostRank {
  int rank = 0;
  std::string text;  // "rank 3 (process 4711 on node2) was lost: its connection closed"

  // The rank itself reported its failure (report_failure), so its user has already read the reason.
  bool reported = false;
  int exit_status = 1;  // exit status that the failure asks for
};

struct HeartbeatOptions {
  RunKey key;                           // the hubs accept connections from processes that know it
  std::string address = "127.0.0.1";    // other ranks reach this rank here
  int64_t beat_ns = 500'000'000;        // interval between signs of life
  int64_t silence_ns = 15'000'000'000;  // a rank is lost after this time without a sign of life
  int64_t join_timeout_ns = 30'000'000'000;
  // Whether this rank is doing work that others may have to wait for; its signs of life tell them. Called on
  // any thread; empty: it never is.
  std::function<bool()> at_work;
  // Called once, on the heartbeat's thread, after the news was forwarded. It may call _exit or return.
  std::function<void(const LostRank&)> on_lost;
};

// Thread-safe.
class Heartbeat {
 public:
  // Collective over `control`, which has all ranks and is used only during construction.
  Heartbeat(comm::Communicator& control, HeartbeatOptions options);

  // The other ranks take this one for lost unless goodbye() was called before.
  ~Heartbeat();

  // Announces an orderly end: the others don't report this rank as lost, and on_lost is no longer called.
  void goodbye();

  // Reports to all other ranks that this rank failed. They get a LostRank with `reported` set and with
  // `reason` in its text.
  void report_failure(const std::string& reason, int exit_status);

  // Whether some other rank was at work according to its last sign of life.
  bool others_at_work() const;

  // The first loss that this rank knows of; wait_for_lost_rank() waits for one. An operation with a lost peer
  // may fail before the news arrives, so wait before naming a rank.
  std::optional<LostRank> lost() const;
  std::optional<LostRank> wait_for_lost_rank(int64_t timeout_ns) const;

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace sluice::transport
