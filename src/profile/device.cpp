#include "profile/device.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "profile/machine.h"

#ifdef SLUICE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace sluice::profile {

namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

int64_t gpu_free_bytes([[maybe_unused]] int index) {
#ifdef SLUICE_CUDA
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (cudaSetDevice(index) == cudaSuccess && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
    return static_cast<int64_t>(free_bytes);
  }
#endif
  return 0;
}

std::string pci_bus_id([[maybe_unused]] int index) {
#ifdef SLUICE_CUDA
  char name[32] = "";
  if (cudaDeviceGetPCIBusId(name, sizeof name, index) == cudaSuccess) return name;
#endif
  return "";
}

// The GPU's number among those that this process sees; -1: the CPU.
int chosen_gpu(config::DeviceChoice wanted, const Machine& machine, int local_rank) {
  if (wanted == config::DeviceChoice::kCuda && machine.gpus.empty()) {
    throw base::InputError(
        base::text("train.device is \"cuda\", but ",
                   machine.built_with_cuda ? "this machine shows no GPU" : "this build has no CUDA code",
                   machine.gpu_fault.empty() ? "" : base::text(" (", machine.gpu_fault, ")"),
                   ": set train.device = \"cpu\" or \"auto\""));
  }
  if (wanted == config::DeviceChoice::kAuto && !machine.gpu_fault.empty()) {
    throw base::InputError(
        base::text("this machine seems to have GPUs, but they cannot be used: ", machine.gpu_fault,
                   "; see `sluice doctor`, or set train.device = \"cpu\" to train "
                   "without them"));
  }
  if (wanted == config::DeviceChoice::kCpu || machine.gpus.empty()) return -1;
  return local_rank % static_cast<int>(machine.gpus.size());
}

// A rank's cores, where a core that n ranks may use counts as 1/n.
double share_of_cores(const std::vector<DeviceCard>& cards, const DeviceCard& own) {
  double share = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &own.cores)) continue;
    share += 1.0 / static_cast<double>(std::ranges::count_if(cards, [&](const DeviceCard& card) {
               return card.host == own.host && CPU_ISSET(core, &card.cores);
             }));
  }
  return share;
}

// The rank's memory before the margin is taken off.
double whole_bytes(const config::MemoryConfig& memory, const Machine& machine,
                   const std::vector<DeviceCard>& cards, const DeviceCard& own,
                   const transport::Launch& launch) {
  if (memory.device_gib > 0) return memory.device_gib * kGibibyte;
  if (!own.on_gpu()) return static_cast<double>(machine.available_bytes) / launch.local_size;
  const auto shares = [&](const DeviceCard& card) { return card.on_gpu() && card.gpu == own.gpu; };
  return static_cast<double>(gpu_free_bytes(own.index)) /
         static_cast<double>(std::ranges::count_if(cards, shares));
}

std::string limit_text(const Machine& machine, const DeviceCard& own) {
  if (own.on_gpu() || machine.memory_limit.empty()) return "";
  return base::text(" within the limit of ", machine.memory_limit);
}

}  // namespace

int threads_of(const std::vector<DeviceCard>& cards, int self, double processors, int local_ranks) {
  double share = share_of_cores(cards, cards[static_cast<size_t>(self)]);
  if (processors > 0) share = std::min(share, processors / local_ranks);
  constexpr double kRounding = 1e-6;
  return std::max(1, static_cast<int>(std::floor(share + kRounding)));
}

DeviceCard device_card(const config::TrainConfig& train, const transport::Launch& launch) {
  const Machine machine = this_machine();
  DeviceCard card;
  ::gethostname(card.host.data(), card.host.size() - 1);
  ::sched_getaffinity(0, sizeof card.cores, &card.cores);
  card.index = chosen_gpu(train.device, machine, launch.local_rank);
  if (card.on_gpu()) card.gpu = machine.gpus[static_cast<size_t>(card.index)].uuid;
  return card;
}

std::vector<DeviceCard> alike_cards(const config::TrainConfig& train, const transport::Launch& launch) {
  std::vector<DeviceCard> cards;
  transport::Launch one = launch;
  for (one.local_rank = 0; one.local_rank < launch.local_size; ++one.local_rank)
    cards.push_back(device_card(train, one));
  return cards;
}

RankDevice rank_device(const config::TrainConfig& train, const config::MemoryConfig& memory,
                       const transport::Launch& launch, const std::vector<DeviceCard>& cards, int self) {
  const Machine machine = this_machine();
  const DeviceCard& own = cards[static_cast<size_t>(self)];
  RankDevice result;
  if (own.on_gpu()) {
    result.device = {c10::kCUDA, static_cast<c10::DeviceIndex>(own.index)};
    result.name = machine.gpus[static_cast<size_t>(own.index)].name;
    result.pci_bus_id = pci_bus_id(own.index);
  }
  result.threads =
      train.threads > 0 ? train.threads : threads_of(cards, self, machine.processors, launch.local_size);
  const double whole = whole_bytes(memory, machine, cards, own, launch);
  const double margin = config::margin_bytes(memory, whole, own.on_gpu());
  if (whole <= margin) {
    throw base::InfeasibleError(base::text("a rank may use ", base::human_bytes(whole),
                                           limit_text(machine, own), ", and memory.margin_gib takes ",
                                           margin / kGibibyte,
                                           " GiB of it: lower the margin or run fewer ranks"));
  }
  result.memory_bytes = static_cast<int64_t>(whole - margin);
  result.host_bytes = memory.host_gib > 0 ? static_cast<int64_t>(memory.host_gib * kGibibyte)
                                          : std::max<int64_t>(1, machine.available_bytes / launch.local_size);
  return result;
}

}  // namespace sluice::profile
