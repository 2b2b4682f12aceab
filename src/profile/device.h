// Which device a rank computes on, with how many threads and how much memory.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "transport/launch.h"

namespace sluice::profile {

struct RankDevice {
  c10::Device device = c10::kCPU;
  std::string name = "CPU";  // or the GPU's
  std::string pci_bus_id;    // of the GPU: "0000:3b:00.0"; empty: none, or not known
  std::string fault;  // why "auto" took the CPU of a machine that seems to have GPUs; empty: it did not
  int threads = 1;    // for computing on the host
  int64_t memory_bytes = 0;  // that the rank may use, margin taken off
  int64_t host_bytes = 0;    // of host memory, for what is offloaded
};

// "auto" is a GPU where this build and this machine have one, else the CPU. Ranks of a machine take GPUs in
// turn by local rank, and share one's memory evenly when there are fewer GPUs than ranks. On the CPU a rank
// may use an even share of what is available now, and gets cores ÷ local ranks threads, at least one.
// Ranks ask at different moments: agree on one figure before planning with it.
// Host memory is shared out in the same way; on the CPU it is the device's own, which memory.device_gib and
// memory.host_gib may divide.
// InputError for "cuda" without a GPU; InfeasibleError when the margin takes all memory.
RankDevice rank_device(const config::TrainConfig& train, const config::MemoryConfig& memory,
                       const transport::Launch& launch);

}  // namespace sluice::profile
