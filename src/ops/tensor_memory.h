// What tensors really take of a rank's device, as the allocators under them count it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace sluice::ops {

// From now on every tensor that this process puts in host memory is counted: one process, one rank. Call it
// before the first tensor; a further call does nothing. GPUs are counted by their allocator in any case.
void count_host_tensors();

// What tensors take of the device now; 0 when nothing counts (host memory without count_host_tensors).
// Thread-safe, as all that follows.
int64_t held_tensor_bytes(c10::Device device);
// Begins a new peak: what is held now.
void reset_peak_tensor_bytes(c10::Device device);
// The most that tensors took of the device since; 0 when nothing counts.
int64_t peak_tensor_bytes(c10::Device device);

// What a GPU's caching allocator has taken from the device since the peak was reset, most at any time, and
// how often it has had to give its cache back and try again since the process began. 0 on a CPU, whose memory
// comes from the system block by block.
struct AllocatorUse {
  int64_t reserved_bytes = 0;
  int64_t retries = 0;
};
AllocatorUse allocator_use(c10::Device device);

// What others than tensors take of a GPU: contexts, communicators, libraries' workspaces, other processes; 0
// on the CPU.
int64_t untracked_device_bytes(c10::Device device);

}  // namespace sluice::ops
