// What this machine has: cores, memory, devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::profile {

struct Machine {
  int cores = 1;                // that this process may use
  int64_t memory_bytes = 0;     // in all
  int64_t available_bytes = 0;  // now
  std::string processor;
  std::string libtorch_version;
  bool built_with_cuda = false;
  bool built_with_cudnn = false;  // with cuDNN's attention
  std::vector<std::string> gpus;  // names; empty without driver or devices
  std::string gpu_fault;  // why there are none to use though there seem to be some; empty: all is well
};
// Starts CUDA's driver, which then works in no child that this process forks without exec: supervisors
// (train/supervisor.h) must not call it.
Machine this_machine();

// Cores that this process may use; touches no device.
int usable_cores();

}  // namespace sluice::profile
