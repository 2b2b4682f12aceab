// NVML's data about a GPU: clock, power, temperature, throttling, errors. The library belongs to the driver
// and is loaded at run time; without it there are no figures.
#pragma once

#include <memory>
#include <string>

#include "watch/figures.h"

namespace sluice::watch {

class GpuHealth {
 public:
  // Null without NVML or without such a GPU. `library` is the file that the dynamic loader opens.
  static std::unique_ptr<GpuHealth> open(const std::string& pci_bus_id,
                                         const char* library = "libnvidia-ml.so.1");
  ~GpuHealth();

  // Queries the driver, which takes some milliseconds, and stores its figures in `sample`. Figures that the
  // device does not support stay unchanged.
  void take(Sample& sample) const;

 private:
  struct Library;
  GpuHealth(std::unique_ptr<Library> library, void* device);
  std::unique_ptr<Library> library_;
  void* device_;
};

}  // namespace sluice::watch
