// A rank that lives and gets nowhere: its process answers, its heartbeat beats, and it never comes on (a
// device that hangs, a thread that the system stopped, a file server that is away, a message that was lost).
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/node_watch.h"
#include "survive/activity.h"

namespace sluice::survive {

// What a process has done since it began.
struct WorkDone {
  int64_t computed_ns = 0;  // processor time of all its threads
  int64_t transfers = 0;    // blocks and pages to and from disks
};
WorkDone process_work_done();

struct WatchdogOptions {
  // How long a rank may be at one thing without anything to show for it. A node that waits for other ranks
  // may run so long beyond kPlannedTimes times what was planned; one that this rank runs alone half of that,
  // so that whoever is stuck says so before those that wait for it do.
  int64_t stall_ns = 60'000'000'000;
  int64_t look_ns = 1'000'000'000;  // between two looks
  // Whether another rank is at work that is its own alone: then waiting is no stall, and that rank's own
  // watchdog judges. Empty: nobody is.
  std::function<bool()> others_at_own_work;
  std::function<WorkDone()> work_done = &process_work_done;
  // Called once, on the watchdog's thread, with what is stuck and for how long.
  std::function<void(const std::string&)> on_stall;
};

// Whether a rank does what others may have to wait for, instead of waiting itself.
bool at_own_work(const Activity& activity, const runtime::NodeWatch& nodes);

// Looks at a rank's nodes while a step is under way, and at its main thread always. While the process
// computes, the time of what the rank does alone counts a kComputingTimes-th: it is slow, and whether it is
// stuck as well shows late. What is not a node has no planned time: it comes on while the process moves bytes
// to or from disks, and stands still when it does nothing at all.
//
// Time is counted in looks: a process that was stopped itself does not blame what it finds when it goes on.
class Watchdog {
 public:
  static constexpr int64_t kPlannedTimes = 10;
  static constexpr int64_t kComputingTimes = 10;

  // `activity` and `nodes` outlive the watchdog.
  Watchdog(const Activity& activity, const runtime::NodeWatch& nodes, WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Seen {
    int64_t serial = 0;
    int64_t age_ns = 0;      // since it was first seen
    int64_t stalled_ns = 0;  // of that, what counts
  };
  void watch();
  std::string look();
  std::string look_at(const runtime::BusyStream& node, Seen& seen, bool held, int64_t counted_ns) const;
  std::string look_at(const Doing& doing, bool held, int64_t counted_ns);

  const Activity& activity_;
  const runtime::NodeWatch& nodes_;
  const WatchdogOptions options_;
  std::array<Seen, graph::kStreams> seen_nodes_;
  Seen seen_;
  WorkDone effort_;  // at the last look
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sluice::survive
