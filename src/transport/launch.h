// Who this process is among the ranks, read from what its launcher put into the environment.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transport/run_key.h"

namespace sluice::transport {

// The exit status of a process that others can do without: a worker whose epoch is over, a rank that was left
// behind.
inline constexpr int kReplaceableStatus = 75;

using Environment = std::map<std::string, std::string>;

enum class Launcher : uint8_t { kNone, kSluice, kTorchrun, kMpi, kSlurm };
const char* name_of(Launcher launcher);

struct Launch {
  Launcher launcher = Launcher::kNone;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks of this machine
  int local_size = 1;
  std::string master_address = "127.0.0.1";  // where rank 0 (or torchrun's store) listens
  int master_port = 0;                       // 0 only with one rank
  bool agent_store = false;                  // torchrun's agent already serves the store: join as a client
  int attempt = 0;                           // torchrun's restart count: keys of other attempts are stale
  std::string run;          // the launcher's name for the run and its attempt; the same for all ranks
  std::string secret;       // SLUICE_SECRET: what strangers don't know; "" where nobody gave one
  int listening_fd = -1;    // rank 0 of our local launcher: already listens at master_port
  bool has_parent = false;  // the parent process is the launcher's, which outlives its ranks
  std::vector<int>
      supervisor_ports;    // by rank, at master_address: of our local launcher, where runs are elastic
  int supervisor_fd = -1;  // this rank's supervisor already listens there
  bool joins = false;      // started in the place of one that was lost

  bool single_host() const { return local_size == world_size; }
  RunKey key() const { return {secret, run, world_size}; }
};

// Recognises, in this order: our local launcher (SLUICE_RANK), torchrun (TORCHELASTIC_RUN_ID, or RANK with
// WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_RANK), MPICH and Intel MPI (PMI_RANK), Slurm (SLURM_PROCID); else
// one rank. MASTER_ADDR and MASTER_PORT win over what Slurm and MPI imply: the first host of the job and a
// port derived from the job's id; without them MPI ranks must share one host. A Slurm batch script is no
// rank, and in a job of several tasks an InputError. An IPv6 address loses its brackets. SLUICE_SECRET is the
// operator's to set, the same for all ranks; our local launcher makes one. Throws InputError naming the
// variable that is missing or wrong.
Launch launch_from(const Environment& environment);

// Marks this process as batch work for the scheduler (unprivileged, inherited by threads made later): small
// messages between ranks that share cores get up to ten times faster. Call it first thing in main.
void use_batch_scheduling();

}  // namespace sluice::transport
