// Starts the ranks of one machine as child processes and waits for them. The launcher itself is not a rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/launch.h"

namespace sluice::transport {

struct LocalLaunch {
  // A rank's work, called in its own process, whose environment says which rank it is (launch_from). It must
  // not throw. When it returns the process exits with status 0.
  std::function<void()> work;
  int ranks = 1;
  int64_t grace_ns = 10'000'000'000;  // after a failure: the time that other ranks have to end by themselves
  // The ranks are supervisors. A rank that was killed by a signal or left behind by the others is restarted
  // and joins them. After a stop signal, or once some rank has ended successfully, the others continue
  // without it. In the latter case a rank that uses no CPU time for grace_ns is killed.
  bool supervised = false;
  // Called when all ranks have ended because one failed, without a stop signal. Returns the pause before all
  // are started again, or nullopt to end. Empty function: they are not started again.
  std::function<std::optional<int64_t>()> begin_anew_after_ns;
  std::function<void(const std::string&)> log;  // lines for the user, as they occur; may be empty
};

struct LocalResult {
  int exit_status = 0;  // the first failed rank's, or 1 if a signal killed one
  int failed_rank = -1;
  std::string failure;        // "rank 2 was killed by signal 9 (Killed)"; "" if all succeeded
  std::vector<int> statuses;  // by rank: exit status, or 128 + signal
};

// Forks a process for each rank and returns when all have ended for good. Stop signals (base/stop_signals.h)
// that arrive meanwhile are forwarded to all ranks, except Ctrl-C, which the terminal sends to them itself.
// RunError if a stop signal is pending before the first rank starts, or if a rank cannot be started. Ranks
// inherit the caller's signal mask and are named "sluice rank R" (`ps -o comm`). Children are killed when
// this process dies, and share its standard input, output and error.
//
// Call it from the main thread, before other threads exist: they would take its signals, and fork does not
// copy them. Call it before any use of CUDA, which a forked process cannot use again.
LocalResult launch_locally(const LocalLaunch& options);

}  // namespace sluice::transport
