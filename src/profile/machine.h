// The machine's resources: cores, memory, devices.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::profile {

struct Machine {
  int cores = 1;                // usable by this process
  double processors = 0;        // processor time allowed by control groups; 0: no limit
  int64_t memory_bytes = 0;     // total within the control groups' limits
  int64_t available_bytes = 0;  // available now
  std::string memory_limit;     // file of the lowest limit; empty: none
  std::string processor;
  std::string libtorch_version;
  bool built_with_cuda = false;
  bool built_with_cudnn = false;  // including cuDNN's attention
  struct Gpu {
    std::string name;
    std::array<uint8_t, 16> uuid{};  // the GPU's, or its MIG slice's
  };
  std::vector<Gpu> gpus;  // visible to this process; empty without driver or devices
  std::string gpu_fault;  // why apparent GPUs are unusable; empty: no fault
};
// Starts CUDA's driver, which then fails in children that this process forks without exec. Supervisors
// (survive/supervisor.h) must not call it.
Machine this_machine();

}  // namespace sluice::profile
