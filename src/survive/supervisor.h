// What stands behind a rank: a small process that starts the rank's worker, keeps its snapshots in memory
// that outlives it, and agrees with the other ranks' supervisors on the next epoch when a rank is lost or a
// new one has come (membership/agent.h). Nothing of a lost worker is taken up: it, and all of its epoch, end,
// and every supervisor forks a new one.
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

// Where a worker sits: what its supervisor gives it.
struct WorkerContext {
  membership::Membership membership;
  SnapshotMemory* memory = nullptr;
  PlanMemory* plans = nullptr;
  std::string run;            // names the run in all of its epochs
  transport::RunKey key;      // of its supervisors: who knows it may join
  int64_t since_ns = 0;       // of the steady clock: when the supervisor began
  int64_t rank_failures = 0;  // of ranks, by which epochs have ended since
  int64_t fruitless = 0;      // epochs in a row, before this one, that were lost before a step was sealed
  bool stop_asked = false;    // before the worker began: it has only to save what the epoch goes on from

  // The mean time between losses so far; 0: there was none.
  int64_t mtbf_ns() const;
};

struct SupervisorOptions {
  transport::Launch launch;             // of the first epoch, or of who joins
  std::filesystem::path run_directory;  // for the tie between two halves
  int64_t join_timeout_ns =
      60'000'000'000;  // for all supervisors to meet, where the launcher doesn't name them
  std::vector<membership::Member>
      contacts;                       // of who joins: whom to ask, where the launcher doesn't name them
  std::optional<NamedMemory> memory;  // none: what the rank's workers seal goes with this process
  // Is the worker, in a process of its own: must end it. Nothing that it does is seen here but the snapshots.
  std::function<void(const transport::Launch& launch, const WorkerContext& worker_context)> work;
};

// Supervises this rank until the run is over; the exit status, of which the user has been told why. REQUIRES:
// the process has one thread, and blocks SIGTERM and SIGINT.
//
// Under our local launcher supervisors know each other's ports. Under others they meet first, at the store
// that the launcher's ranks share, in a process that each of them forks for it: what libtorch starts for a
// store has no place in a process that forks.
int supervise(const SupervisorOptions& options);

}  // namespace sluice::survive
