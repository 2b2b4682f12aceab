// Who is alive: sockets of their own between ranks, watched by a thread, because a Gloo group notices a lost
// peer only inside an operation with it.
//
// Two hubs, ranks 0 and 1: every rank is connected to both, so any rank's death shows as end-of-file at a hub
// at once (a hub's at everyone), and a freeze as missing beats. Who learns of a loss first passes the news on
// before doing anything else; news that a message brings goes before end-of-files seen at the same time. So
// all name the rank that was lost first, not those that ended because of it.
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

  // The rank told of its failure itself (report_failure): its user has read why.
  bool reported = false;
  int exit_status = 1;  // that the failure asks for
};

struct HeartbeatOptions {
  RunKey key;                           // the hubs' doors open to who knows it
  std::string address = "127.0.0.1";    // how others reach this rank
  int64_t beat_ns = 500'000'000;        // between two signs of life
  int64_t silence_ns = 15'000'000'000;  // without any: lost
  int64_t join_timeout_ns = 30'000'000'000;
  // Whether this rank is at work that others may wait for, which its signs of life tell them. Any thread;
  // empty: it never is.
  std::function<bool()> at_work;
  // Called once, on the heartbeat's thread, after the news was passed on. It may _exit; returning is fine.
  std::function<void(const LostRank&)> on_lost;
};

// Thread-safe.
class Heartbeat {
 public:
  // Collective over `control`, which has all ranks and is used only inside the constructor.
  Heartbeat(comm::Communicator& control, HeartbeatOptions options);

  // Without a goodbye before, the other ranks take this one for lost.
  ~Heartbeat();

  // This rank ends in order: the others don't miss it, and on_lost is not called any more.
  void goodbye();

  // Tells all others that this rank failed of itself; they get it as a reported Loss with `reason` in its
  // text.
  void report_failure(const std::string& reason, int exit_status);

  // Whether some other rank was at work by its last sign of life.
  bool others_at_work() const;

  // The first loss that this rank heard of; the second form waits for one. An operation with a lost peer may
  // fail before the news is here: ask before naming anybody.
  std::optional<LostRank> lost() const;
  std::optional<LostRank> wait_for_lost_rank(int64_t timeout_ns) const;

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace sluice::transport
