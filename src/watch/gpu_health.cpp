#include "watch/gpu_health.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>

namespace sluice::watch {

namespace {

// NVML's interface according to its documentation: every call returns 0 on success. Function names include
// their versions, so a function never changes.
using Device = void*;
constexpr int kDone = 0;
constexpr int kTemperatureOfGpu = 0;
constexpr int kClockOfMultiprocessors = 1;
constexpr int kUncorrectedErrors = 1;
constexpr int kSinceDriverLoaded = 0;
constexpr unsigned kMostLinks = 18;
constexpr std::array<int, 2> kLinkErrors = {0, 3};  // replays, CRC of data

}  // namespace

struct GpuHealth::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_by_bus_id)(const char*, Device*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;  // milliwatts
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*throttle_reasons)(Device, unsigned long long*) = nullptr;
  int (*ecc_errors)(Device, int, int, unsigned long long*) = nullptr;
  int (*pcie_width)(Device, unsigned*) = nullptr;
  int (*nvlink_errors)(Device, unsigned, int, unsigned long long*) = nullptr;
  bool initialized = false;

  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
  }

  ~Library() {
    if (initialized && shutdown != nullptr) shutdown();
    if (handle != nullptr) ::dlclose(handle);
  }
};

std::unique_ptr<GpuHealth> GpuHealth::open(const std::string& pci_bus_id, const char* library) {
  auto nvml = std::make_unique<Library>();
  nvml->handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (nvml->handle == nullptr) return nullptr;
  nvml->find(nvml->init, "nvmlInit_v2");
  nvml->find(nvml->shutdown, "nvmlShutdown");
  nvml->find(nvml->device_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  nvml->find(nvml->clock, "nvmlDeviceGetClockInfo");
  nvml->find(nvml->power, "nvmlDeviceGetPowerUsage");
  nvml->find(nvml->temperature, "nvmlDeviceGetTemperature");
  nvml->find(nvml->throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  nvml->find(nvml->ecc_errors, "nvmlDeviceGetTotalEccErrors");
  nvml->find(nvml->pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  nvml->find(nvml->nvlink_errors, "nvmlDeviceGetNvLinkErrorCounter");
  if (nvml->init == nullptr || nvml->device_by_bus_id == nullptr || nvml->init() != kDone) return nullptr;
  nvml->initialized = true;
  Device device = nullptr;
  if (nvml->device_by_bus_id(pci_bus_id.c_str(), &device) != kDone) return nullptr;
  return std::unique_ptr<GpuHealth>(new GpuHealth(std::move(nvml), device));
}

GpuHealth::GpuHealth(std::unique_ptr<Library> library, void* device)
    : library_(std::move(library)), device_(device) {}

GpuHealth::~GpuHealth() = default;

void GpuHealth::take(Sample& sample) const {
  const Library& nvml = *library_;
  unsigned value = 0;
  unsigned long long wide = 0;
  if (nvml.clock && nvml.clock(device_, kClockOfMultiprocessors, &value) == kDone)
    sample[Figure::kGpuClock] = value;
  if (nvml.power && nvml.power(device_, &value) == kDone) sample[Figure::kGpuPower] = value / 1000;
  if (nvml.temperature && nvml.temperature(device_, kTemperatureOfGpu, &value) == kDone)
    sample[Figure::kGpuTemperature] = value;
  if (nvml.throttle_reasons && nvml.throttle_reasons(device_, &wide) == kDone)
    sample[Figure::kGpuThrottled] = static_cast<int64_t>(wide);
  if (nvml.ecc_errors && nvml.ecc_errors(device_, kUncorrectedErrors, kSinceDriverLoaded, &wide) == kDone)
    sample[Figure::kGpuEccErrors] = static_cast<int64_t>(wide);
  if (nvml.pcie_width && nvml.pcie_width(device_, &value) == kDone) sample[Figure::kGpuPcieLanes] = value;
  for (unsigned link = 0; nvml.nvlink_errors && link < kMostLinks; ++link) {
    for (const int kind : kLinkErrors) {
      if (nvml.nvlink_errors(device_, link, kind, &wide) != kDone) continue;
      int64_t& errors = sample[Figure::kGpuNvlinkErrors];
      errors = std::max<int64_t>(errors, 0) + static_cast<int64_t>(wide);
    }
  }
}

}  // namespace sluice::watch
