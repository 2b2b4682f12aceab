// Ranks as threads, each with a GPU of the stand-in and one of Sluice's transports between GPUs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "network.h"
#include "transport/device_transport_options.h"

namespace sluice::nccl_stand_in {

struct Outcome {
  std::vector<std::string> errors;  // by rank: the RunError of its thread; "": none
  std::string fault;                // the network's
  NetworkCounts counts;
};

// Runs `body` on every rank's thread. Forgets what the network did before.
Outcome run_ranks(int ranks, const NetworkOptions& options, const std::function<void(comm::Transport&)>& body,
                  transport::DeviceTransportKind kind = transport::DeviceTransportKind::kNccl);

// Makes the rank's GPU the current one of this thread.
void use_device(int rank);

// The whole world's ranks.
std::vector<int> all_ranks(int ranks);

// Waits for this rank's current stream. Throws RunError after a fault of the network.
void wait_for_stream();

}  // namespace sluice::nccl_stand_in
