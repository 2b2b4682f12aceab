// What this machine has: cores, memory, devices.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::profile {

struct Machine {
  int cores = 1;                // that this process may use
  double processors = 0;        // whose time its control groups let it use; 0: no limit
  int64_t memory_bytes = 0;     // in all, within the limits of its control groups
  int64_t available_bytes = 0;  // now, of these
  std::string memory_limit;     // the file of the lowest such limit; empty: none
  std::string processor;
  std::string libtorch_version;
  bool built_with_cuda = false;
  bool built_with_cudnn = false;  // with cuDNN's attention
  struct Gpu {
    std::string name;
    std::array<uint8_t, 16> uuid{};  // of the card, or of its slice (MIG)
  };
  std::vector<Gpu> gpus;  // that this process sees; empty without driver or devices
  std::string gpu_fault;  // why there are none to use though there seem to be some; empty: all is well
};
// Starts CUDA's driver, which then works in no child that this process forks without exec: supervisors
// (survive/supervisor.h) must not call it.
Machine this_machine();

// Cores that this process may use, and no more than the processors whose time it has; touches no device.
int usable_cores();

}  // namespace sluice::profile
