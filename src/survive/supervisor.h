// The supervisor of a rank: a small process that starts the rank's worker and keeps the worker's snapshots in
// memory that outlives it. When a rank is lost or a new one has come, it agrees with the other ranks'
// supervisors on the next membership (membership/agent.h). Nothing of a lost worker is reused: all workers of
// its membership end, and every supervisor forks a new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "membership/membership.h"
#include "survive/plan_memory.h"
#include "survive/snapshot_memory.h"
#include "transport/launch.h"
#include "transport/run_key.h"

namespace sluice::survive {

// Data that a supervisor passes to its worker.
struct WorkerContext {
  membership::Membership membership;
  SnapshotMemory* memory = nullptr;
  PlanMemory* plans = nullptr;
  std::string run;            // names the run in all of its memberships
  transport::RunKey key;      // the supervisors' key: a process that knows it may join
  int64_t since_ns = 0;       // when the supervisor began, by the steady clock
  int64_t rank_failures = 0;  // failures since then that ended a membership
  int64_t fruitless = 0;      // memberships in a row, just before this one, that sealed no step
  bool stop_asked = false;    // stopped before the worker began: it only saves the initial state

  // Mean time between failures (MTBF) so far, in ns; 0: there was none.
  int64_t mtbf_ns() const;
};

struct SupervisorOptions {
  transport::Launch launch;             // the first membership's, or a joining rank's
  std::filesystem::path run_directory;  // for take_tie()
  int64_t join_timeout_ns =
      60'000'000'000;  // for all supervisors to meet, where the launcher doesn't name them
  std::vector<membership::Member>
      contacts;                       // members that a joining rank asks, if the launcher does not name them
  std::optional<NamedMemory> memory;  // none: the worker's snapshots end with this process
  // Runs the worker in its own process and must end that process. This process sees only its snapshots.
  std::function<void(const transport::Launch& launch, const WorkerContext& worker_context)> work;
};

// Supervises this rank until the run is over. Returns the exit status, whose reason the user has been given
// by then. REQUIRES: the process has one thread and blocks SIGTERM and SIGINT.
//
// Under our local launcher supervisors know each other's ports. Under other launchers they first meet at the
// store that the launcher's ranks share, in a child process of each supervisor: libtorch starts threads for a
// store, and a supervisor must stay free to fork.
int supervise(const SupervisorOptions& options);

}  // namespace sluice::survive
