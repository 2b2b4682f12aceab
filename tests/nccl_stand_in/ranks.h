// Ranks as threads, each with a GPU of the stand-in and Sluice's transport over NCCL.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "network.h"

namespace sluice::nccl_stand_in {

struct Outcome {
  std::vector<std::string> errors;  // by rank: the RunError of its thread; "": none
  std::string fault;                // the network's
  NetworkCounts counts;
};

// Runs `body` on every rank's thread. Forgets what the network did before.
Outcome run_ranks(int ranks, const NetworkOptions& options,
                  const std::function<void(comm::Transport&)>& body);

// The whole world's ranks.
std::vector<int> all_ranks(int ranks);

// Waits for this rank's current stream. Throws RunError after a fault of the network.
void wait_for_stream();

}  // namespace sluice::nccl_stand_in
