#include "profile/machine.h"

#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/core_set.h"
#include "base/group_limits.h"
#include "base/text.h"
#include "ops/device.h"

#ifdef SLUICE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace sluice::profile {

namespace {

// The value of the line "key : value" or "key: value" of a /proc file.
std::string proc_value(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) return std::string(base::trim(line.substr(colon + 1)));
  }
  return "";
}

int64_t meminfo_bytes(const std::string& key) {
  const std::string value = proc_value("/proc/meminfo", key);
  return base::parse_integer(value.substr(0, value.find(' '))).value_or(0) * 1024;
}

void find_gpus(Machine& machine) {
  // CUDA's own count would not do: the first call to CUDA fixes how many queues the driver creates.
  machine.gpu_fault = ops::gpu_fault();
#ifdef SLUICE_CUDA
  for (int device = 0; device < ops::gpu_count(); ++device) {
    cudaDeviceProp properties{};
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess) {
      machine.gpus.clear();
      machine.gpu_fault = base::text("GPU ", device, " does not answer: ", cudaGetErrorString(error));
      return;
    }
    Machine::Gpu& gpu = machine.gpus.emplace_back(Machine::Gpu{properties.name});
    static_assert(sizeof properties.uuid == sizeof gpu.uuid);
    std::memcpy(gpu.uuid.data(), &properties.uuid, sizeof gpu.uuid);
  }
#endif
}

}  // namespace

Machine this_machine() {
  Machine machine;
  const base::CoreSet cores = base::own_cores();
  machine.cores = base::cores_together({&cores, 1});
  const base::GroupLimits limits = base::group_limits();
  machine.processors = limits.processors;
  machine.memory_bytes = std::min(meminfo_bytes("MemTotal"), limits.memory_bytes);
  machine.available_bytes = std::min(meminfo_bytes("MemAvailable"), limits.left_bytes);
  machine.memory_limit = limits.memory_file.string();
  machine.processor = proc_value("/proc/cpuinfo", "model name");
  machine.libtorch_version = TORCH_VERSION;
#ifdef SLUICE_CUDA
  machine.built_with_cuda = true;
#endif
#ifdef SLUICE_CUDNN
  machine.built_with_cudnn = true;
#endif
  find_gpus(machine);
  return machine;
}

}  // namespace sluice::profile
