// The memory that tensors take of a rank's device, as the allocators count it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace sluice::ops {

// Counts every tensor that this process puts in host memory from now on (a process is one rank). Call it
// before the first tensor; a further call does nothing. GPUs are always counted by their allocator.
void count_host_tensors();

// Bytes of tensors on the device now; 0 if they are not counted (host memory without count_host_tensors).
// Thread-safe, as all functions below.
int64_t held_tensor_bytes(c10::Device device);
// Begins a new peak at the bytes held now.
void reset_peak_tensor_bytes(c10::Device device);
// Peak bytes of tensors on the device since the reset; 0 if they are not counted.
int64_t peak_tensor_bytes(c10::Device device);

// The use of a GPU's caching allocator. reserved_bytes is the peak of its reserved memory since the peak was
// reset. Since the process began, it counts how often the allocator had to free its cache and retry. 0 on a
// CPU, whose memory comes from the system block by block.
struct AllocatorUse {
  int64_t reserved_bytes = 0;
  int64_t retries = 0;
};
AllocatorUse allocator_use(c10::Device device);

// GPU memory in use by anything but tensors: contexts, communicators, libraries' workspaces, other processes;
// 0 on the CPU.
int64_t untracked_device_bytes(c10::Device device);

}  // namespace sluice::ops
