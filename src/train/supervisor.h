// What stands behind a rank: a small process that starts the rank's worker, keeps its snapshots in memory
// that outlives it, and agrees with the other ranks' supervisors on the next epoch when a rank is lost or a
// new one has come (membership/agent.h). Nothing of a lost worker is taken up: it, and all of its epoch, end,
// and every supervisor forks a new one.
#pragma once

#include <filesystem>
#include <functional>

#include "membership/epoch.h"
#include "train/snapshot_memory.h"
#include "transport/launch.h"

namespace sluice::train {

// Where a worker sits: what its supervisor gives it.
struct Seat {
  membership::Epoch epoch;
  SnapshotMemory* memory = nullptr;
  std::string run;  // names the run in all of its epochs
};

struct SupervisorOptions {
  transport::Launch launch;             // of the first epoch, or of who joins
  std::filesystem::path run_directory;  // for the tie between two halves
  // Is the worker, in a process of its own: must end it. Nothing that it does is seen here but the snapshots.
  std::function<void(const transport::Launch& launch, const Seat& seat)> work;
};

// Supervises this rank until the run is over; the exit status, of which the user has been told why. REQUIRES:
// the process has one thread, and blocks SIGTERM and SIGINT.
int supervise(const SupervisorOptions& options);

}  // namespace sluice::train
