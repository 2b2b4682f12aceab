// Detects a rank that lives but makes no progress: its process answers and its heartbeat beats. Causes are a
// device that hangs, a thread that the system stopped, an unreachable file server, or a lost message.
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

// Work that this process has done since it began.
struct WorkDone {
  int64_t computed_ns = 0;  // CPU time of all its threads
  int64_t transfers = 0;    // blocks and pages to and from disks
};
WorkDone process_work_done();

struct WatchdogOptions {
  // How long a rank's activity may make no progress. A graph node may take kPlannedTimes times its planned
  // time longer than that. A node that this rank runs alone gets half of stall_ns, so that a stuck rank
  // reports before the ranks that wait for it.
  int64_t stall_ns = 60'000'000'000;
  int64_t look_ns = 1'000'000'000;  // interval between two looks
  // Whether another rank does work that only it can advance. Then waiting is no stall, and that rank's own
  // watchdog decides. Empty function: no other rank does.
  std::function<bool()> others_at_own_work;
  std::function<WorkDone()> work_done = &process_work_done;
  // Called once, on the watchdog's thread, with a text that says what is stuck and for how long.
  std::function<void(const std::string&)> on_stall;
};

// Whether this rank does work that others may have to wait for, instead of waiting itself.
bool at_own_work(const Activity& activity, const runtime::NodeWatch& nodes);

// Looks at a rank's graph nodes during a step, and always at its main thread. While the process computes,
// time in work that the rank does alone counts only 1/kComputingTimes: the rank is slow, and a stuck one is
// noticed later. Work outside of nodes has no planned time. It makes progress while the process moves bytes
// to or from disks, and stalls when it does neither.
//
// Time is counted in looks: if this process was stopped itself, it reports nothing at once when it resumes.
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
    int64_t age_ns = 0;      // time since it was first seen
    int64_t stalled_ns = 0;  // the part of age_ns that counts
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
  WorkDone effort_;  // at the previous look
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sluice::survive
