// Starts the ranks of one machine as child processes and waits for them; it is no rank itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/launch.h"

namespace sluice::transport {

struct LocalLaunch {
  // A rank's work, called in a process of its own, whose environment says which rank it is (launch_from). It
  // must not throw; when it returns the process ends with status 0.
  std::function<void()> work;
  int ranks = 1;
  int64_t grace_ns = 10'000'000'000;  // after one rank failed: for the others to end by themselves
  // The ranks are supervisors: one that a signal killed is started anew to join the others, as one is that
  // they left behind; once all were told to stop, or some have come to the end, the others do without it. Who
  // then stands still for grace_ns is ended.
  bool supervised = false;
  // Called when all ranks have ended because one failed, and none was told to stop. Returns the pause until
  // all are started anew; nothing, or an empty function: they are not.
  std::function<std::optional<int64_t>()> begin_anew_after_ns;
  std::function<void(const std::string&)> log;  // lines for the user, as they come; may be empty
};

struct LocalResult {
  int exit_status = 0;  // the first failed rank's, or 1 if a signal killed one
  int failed_rank = -1;
  std::string failure;        // "rank 2 was killed by signal 9 (Killed)"; "" if all succeeded
  std::vector<int> statuses;  // by rank: exit status, or 128 + signal
};

// Forks a process for each rank and returns when all have ended for good. Signals to stop
// (base/stop_signals.h) that come meanwhile are passed on to all (but not Ctrl-C, which the terminal sends
// them itself); RunError for one that is pending before the first has started. Ranks inherit the caller's
// signal mask and are called "sluice rank R" (`ps -o comm`). The children are killed when this process dies.
// Children share standard input, output and error. Throws RunError when a rank cannot be started.
//
// Call it from the main thread, before other threads exist, which would take its signals and which a fork
// leaves behind, and before the first question to CUDA, which a forked process can't ask again.
LocalResult launch_locally(const LocalLaunch& options);

}  // namespace sluice::transport
