// GPUs as the rest sees them: how many, and libtorch's kernels for them.
//
// Programs are linked without libtorch's CUDA kernels, so that they start quickly and on machines that lack
// the libraries those need (docs/decisions/0003-cuda-build.md). Whoever wants a tensor on a GPU loads them.
#pragma once

#include <c10/core/Device.h>

namespace sluice::ops {

// GPUs that can be used; 0 without a driver or when this was built without CUDA. Cheap after the first call.
int gpu_count();

// Makes tensors on `device` possible: nothing for the CPU; for a GPU loads libtorch's kernels, once a
// process, in about 0.2 s. Call it before the first operation on a GPU tensor. Thread-safe.
// Throws InputError when this was built without CUDA or there is no such GPU, RunError naming the library
// that cannot be loaded.
void prepare_device(const c10::Device& device);

}  // namespace sluice::ops
