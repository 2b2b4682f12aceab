// A check of seconds whether devices compute right, and how fast, for people at a new machine.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace sluice::profile {

struct DeviceCheck {
  std::string what;    // "product", "attention", "copies" or "collective"
  std::string figure;  // the rate, with its unit
  std::string fault;   // what is wrong, and by how much; empty: nothing
};

// A product and attention with its gradients, each beside the same in FP64 on the host, and a copy of a part
// of the device's memory, which is read back. In the type that runs on the device have: bfloat16 on GPUs,
// float32 on CPUs. At most some 3 s and 2 GiB. Errors of libraries are faults.
std::vector<DeviceCheck> check_device(c10::Device device);

// A sum over all devices, each a rank in a thread of its own: NCCL between GPUs, Gloo between CPUs. Errors of
// libraries are faults. REQUIRES: at least one device, all of one kind.
DeviceCheck check_collective(const std::vector<c10::Device>& devices);

}  // namespace sluice::profile
