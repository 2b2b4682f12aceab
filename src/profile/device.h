// Which device a rank computes on, with how many threads and how much memory.
#pragma once

#include <c10/core/Device.h>
#include <sched.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "transport/launch.h"

namespace sluice::profile {

// What ranks tell each other of what they compute on and with, so that each knows who shares it. Bytes that
// travel as they are.
struct DeviceCard {
  std::array<char, 64> host{};    // the machine's name
  cpu_set_t cores{};              // that the rank may use
  std::array<uint8_t, 16> gpu{};  // the UUID of the card, or of its slice; zeros on the CPU
  int32_t index = -1;             // of the GPU among those that the rank sees; -1: the CPU

  bool on_gpu() const { return index >= 0; }
};

// Chooses this rank's device. "auto" is a GPU where this machine has one, else the CPU; ranks of a machine
// take the GPUs that they see in turn by local rank. InputError for "cuda" without a GPU, and for "auto"
// where there are GPUs that cannot be used.
DeviceCard device_card(const config::TrainConfig& train, const transport::Launch& launch);

struct RankDevice {
  c10::Device device = c10::kCPU;
  std::string name = "CPU";  // or the GPU's
  std::string pci_bus_id;    // of the GPU: "0000:3b:00.0"; empty: none, or not known
  int threads = 1;           // for computing on the host
  int64_t memory_bytes = 0;  // that the rank may use, margin taken off
  int64_t host_bytes = 0;    // of host memory, for what is offloaded
};

// `cards` are all ranks', the one of rank `self` its own. A GPU's free memory is divided among the ranks
// whose cards name it. On the CPU a rank may use an even share of what is available now to its machine, or to
// its control group. A core is shared by the ranks that may use it: a rank gets as many threads as it has
// cores of its own, at least one, within its share of the time that its control group has. Ranks ask at
// different moments: agree on one figure before planning with it. Host memory is shared out in the same way;
// on the CPU it is the device's own, which memory.device_gib and memory.host_gib may divide. InfeasibleError
// when the margin takes all memory.
RankDevice rank_device(const config::TrainConfig& train, const config::MemoryConfig& memory,
                       const transport::Launch& launch, const std::vector<DeviceCard>& cards, int self);

// The compute threads of rank `self`, where its control group has the time of so many processors for the
// ranks of its machine; 0: no limit.
int threads_of(const std::vector<DeviceCard>& cards, int self, double processors, int local_ranks);

// The cards of a launch's ranks, were they all like this process on this machine.
std::vector<DeviceCard> alike_cards(const config::TrainConfig& train, const transport::Launch& launch);

}  // namespace sluice::profile
