// This process's rank and its place among all ranks, read from its launcher's environment variables.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transport/run_key.h"

namespace sluice::transport {

// Exit status of a process that the others can do without: a worker whose membership is over, or a rank that
// was left behind.
inline constexpr int kReplaceableStatus = 75;

using Environment = std::map<std::string, std::string>;

enum class Launcher : uint8_t { kNone, kSluice, kTorchrun, kMpi, kSlurm };
const char* name_of(Launcher launcher);

struct Launch {
  Launcher launcher = Launcher::kNone;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks on this machine
  int local_size = 1;
  std::string master_address = "127.0.0.1";  // the address of rank 0 or of torchrun's store
  int master_port = 0;                       // 0 only with one rank
  bool agent_store = false;                  // torchrun's agent already serves the store: join as a client
  int attempt = 0;                           // torchrun's restart count: keys of other attempts are stale
  std::string run;          // the launcher's name for the run and its attempt; the same for all ranks
  std::string secret;       // SLUICE_SECRET, unknown to strangers; "" if none was given
  int listening_fd = -1;    // rank 0 under our local launcher: already listens at master_port
  bool has_parent = false;  // the parent process belongs to the launcher and outlives its ranks
  std::vector<int> supervisor_ports;  // by rank, at master_address: our local launcher in elastic runs
  int supervisor_fd = -1;             // this rank's supervisor already listens there
  bool joins = false;                 // started in place of a lost rank

  bool single_host() const { return local_size == world_size; }
  RunKey key() const { return {secret, run, world_size}; }
};

// Recognizes, in this order: our local launcher (SLUICE_RANK), torchrun (TORCHELASTIC_RUN_ID, or RANK with
// WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_RANK), MPICH and Intel MPI (PMI_RANK), Slurm (SLURM_PROCID);
// otherwise a single rank. MASTER_ADDR and MASTER_PORT override the default under Slurm and MPI: the job's
// first host, and a port derived from the job's id. Without them MPI ranks must share one host. A Slurm batch
// script is not a rank: in a job of several tasks it is an InputError. Brackets around an IPv6 address are
// removed. The operator sets SLUICE_SECRET to the same value on all ranks; our local launcher generates it.
// Throws InputError naming the variable that is missing or wrong.
Launch launch_from(const Environment& environment);

// Marks this process as batch work (SCHED_BATCH; unprivileged, inherited by later threads). Small messages
// between ranks that share cores become up to ten times faster. Call it first in main.
void use_batch_scheduling();

}  // namespace sluice::transport
