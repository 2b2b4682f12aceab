// A rank that lives and gets nowhere: its process answers, its heartbeat beats, and a node of the step never
// ends (a device that hangs, a thread that the system stopped, a message that was lost).
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/node_watch.h"

namespace sluice::train {

struct WatchdogOptions {
  // How long a node that waits for other ranks may run, beyond kPlannedTimes times what was planned; one that
  // this rank runs alone gets half of it, so that whoever is stuck says so before those that wait for it do.
  int64_t stall_ns = 60'000'000'000;
  int64_t look_ns = 1'000'000'000;  // between two looks
  // Called once, on the watchdog's thread, with what is stuck and for how long.
  std::function<void(const std::string&)> on_stall;
};

// Looks at a rank's nodes only: planning, evaluation's gathering and saving take the time they need. Time is
// counted in looks: a process that was stopped itself does not blame what it finds when it goes on.
class StepWatchdog {
 public:
  static constexpr int64_t kPlannedTimes = 10;

  // `nodes` outlives the watchdog.
  StepWatchdog(const runtime::NodeWatch& nodes, WatchdogOptions options);
  ~StepWatchdog();
  StepWatchdog(const StepWatchdog&) = delete;
  StepWatchdog& operator=(const StepWatchdog&) = delete;

 private:
  void watch();
  std::string look();

  const runtime::NodeWatch& nodes_;
  const WatchdogOptions options_;
  struct Seen {
    int64_t serial = 0;
    int64_t looks = 0;
  };
  std::array<Seen, graph::kStreams> seen_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sluice::train
