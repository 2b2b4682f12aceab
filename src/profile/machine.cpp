#include "profile/machine.h"

#include <sched.h>
#include <torch/headeronly/version.h>

#include <fstream>

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

int allowed_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
#ifdef SLUICE_CUDA
  // Not CUDA's own count: whoever asks CUDA first settles how many queues the driver makes.
  for (int device = 0; device < ops::gpu_count(); ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) names.emplace_back(properties.name);
  }
#endif
  return names;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cores = allowed_cores();
  machine.memory_bytes = meminfo_bytes("MemTotal");
  machine.available_bytes = meminfo_bytes("MemAvailable");
  machine.processor = proc_value("/proc/cpuinfo", "model name");
  machine.libtorch_version = TORCH_VERSION;
#ifdef SLUICE_CUDA
  machine.built_with_cuda = true;
#endif
#ifdef SLUICE_CUDNN
  machine.built_with_cudnn = true;
#endif
  machine.gpus = gpu_names();
  return machine;
}

}  // namespace sluice::profile
