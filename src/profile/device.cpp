#include "profile/device.h"

#include <algorithm>

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

c10::Device choose(config::DeviceChoice wanted, const Machine& machine, int local_rank) {
  if (wanted == config::DeviceChoice::kCuda && machine.gpus.empty()) {
    throw base::InputError(
        base::text("train.device is \"cuda\", but ",
                   machine.built_with_cuda ? "this machine shows no GPU" : "this build has no CUDA code",
                   machine.gpu_fault.empty() ? "" : base::text(" (", machine.gpu_fault, ")"),
                   ": set train.device = \"cpu\" or \"auto\""));
  }
  if (wanted == config::DeviceChoice::kCpu || machine.gpus.empty()) return c10::kCPU;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % static_cast<int>(machine.gpus.size()))};
}

// Before the margin.
double memory_bytes(const config::MemoryConfig& memory, const Machine& machine, c10::Device device,
                    const transport::Launch& launch) {
  if (memory.device_gib > 0) return memory.device_gib * kGibibyte;
  if (device.is_cpu()) return static_cast<double>(machine.available_bytes) / launch.local_size;
  const int gpus = static_cast<int>(machine.gpus.size());
  const int sharing = (launch.local_size + gpus - 1) / gpus;
  return static_cast<double>(gpu_free_bytes(device.index())) / sharing;
}

}  // namespace

namespace {

std::string pci_bus_id(c10::Device device) {
#ifdef SLUICE_CUDA
  char name[32] = "";
  if (device.is_cuda() && cudaDeviceGetPCIBusId(name, sizeof name, device.index()) == cudaSuccess)
    return name;
#else
  static_cast<void>(device);
#endif
  return "";
}

}  // namespace

RankDevice rank_device(const config::TrainConfig& train, const config::MemoryConfig& memory,
                       const transport::Launch& launch) {
  const Machine machine = this_machine();
  RankDevice result;
  result.device = choose(train.device, machine, launch.local_rank);
  if (result.device.is_cuda()) result.name = machine.gpus[static_cast<size_t>(result.device.index())];
  result.pci_bus_id = pci_bus_id(result.device);
  if (train.device == config::DeviceChoice::kAuto) result.fault = machine.gpu_fault;
  result.threads = train.threads > 0 ? train.threads : std::max(1, machine.cores / launch.local_size);
  const double whole = memory_bytes(memory, machine, result.device, launch);
  const double usable = whole - memory.margin_gib * kGibibyte;
  if (usable <= 0) {
    throw base::InfeasibleError(base::text("a rank may use ", base::human_bytes(whole),
                                           ", and memory.margin_gib takes ", memory.margin_gib,
                                           " GiB of it: lower the margin or run fewer ranks"));
  }
  result.memory_bytes = static_cast<int64_t>(usable);
  result.host_bytes = memory.host_gib > 0 ? static_cast<int64_t>(memory.host_gib * kGibibyte)
                                          : std::max<int64_t>(1, machine.available_bytes / launch.local_size);
  return result;
}

}  // namespace sluice::profile
