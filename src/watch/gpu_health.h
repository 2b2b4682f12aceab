// What NVML says of a GPU: clocks, power, temperature, why it is held back, errors. The library is the
// driver's, found at run time; who lacks it has no figures.
#pragma once

#include <memory>
#include <string>

#include "watch/figures.h"

namespace sluice::watch {

class GpuHealth {
 public:
  // Null where there is no NVML, or no such GPU. `library`: what the dynamic loader is asked for.
  static std::unique_ptr<GpuHealth> open(const std::string& pci_bus_id,
                                         const char* library = "libnvidia-ml.so.1");
  ~GpuHealth();

  // Asks the driver, some milliseconds, and puts its figures into `sample`; what the device does not have
  // stays as it is.
  void take(Sample& sample) const;

 private:
  struct Library;
  GpuHealth(std::unique_ptr<Library> library, void* device);
  std::unique_ptr<Library> library_;
  void* device_;
};

}  // namespace sluice::watch
