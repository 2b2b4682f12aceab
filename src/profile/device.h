// Chooses the device that a rank computes on, its number of threads and its memory.
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

// The description of a rank's device and cores that ranks exchange, so that each knows who shares them. Sent
// as plain bytes.
struct DeviceCard {
  std::array<char, 64> host{};    // the machine's name
  cpu_set_t cores{};              // usable by the rank
  std::array<uint8_t, 16> gpu{};  // the GPU's UUID, or its MIG slice's; zeros on the CPU
  int32_t index = -1;             // the GPU's number among those visible to the rank; -1: the CPU

  bool on_gpu() const { return index >= 0; }
};

// Chooses this rank's device. "auto" is a GPU if this machine has one, else the CPU. Ranks of a machine take
// their visible GPUs in turn by local rank. InputError for "cuda" without a GPU, and for "auto" if there are
// GPUs that cannot be used.
DeviceCard device_card(const config::TrainConfig& train, const transport::Launch& launch);

struct RankDevice {
  c10::Device device = c10::kCPU;
  std::string name = "CPU";  // "CPU" or the GPU's name
  std::string pci_bus_id;    // the GPU's: "0000:3b:00.0"; empty: no GPU, or unknown
  int threads = 1;           // for computing on the host
  int64_t memory_bytes = 0;  // usable by the rank, without the margin
  int64_t host_bytes = 0;    // host memory for offloaded rows
};

// `cards` are all ranks' cards; cards[self] is this rank's. A GPU's free memory is divided among the ranks
// whose cards name it. On the CPU a rank gets an even share of the memory now available to its machine or
// control group. Cores are divided among the ranks that may use them. A rank gets one thread for each whole
// core of its share, at least one, and at most its share of its control group's processor time. Ranks measure
// at different moments, so they must agree on one figure before planning. Host memory is divided likewise; on
// the CPU it is the device's memory, and memory.device_gib and memory.host_gib may divide it. InfeasibleError
// if the margin takes all memory.
RankDevice rank_device(const config::TrainConfig& train, const config::MemoryConfig& memory,
                       const transport::Launch& launch, const std::vector<DeviceCard>& cards, int self);

// Compute threads of rank `self`. Its control group may use `processors` processors' time for all ranks of
// its machine; 0: no limit.
int threads_of(const std::vector<DeviceCard>& cards, int self, double processors, int local_ranks);

// The cards of a launch's ranks, as if each ran like this process on this machine.
std::vector<DeviceCard> alike_cards(const config::TrainConfig& train, const transport::Launch& launch);

}  // namespace sluice::profile
