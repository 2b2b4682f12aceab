// Access to GPUs for the other modules: their number, and libtorch's kernels for them.
//
// Programs are linked without libtorch's CUDA kernels and the libraries they need, to start quickly and
// anywhere (docs/decisions/0003-cuda-build.md). prepare_device() loads them before a GPU tensor is used.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>

namespace sluice::ops {

// Number of usable GPUs; 0 without a driver or if this was built without CUDA. Cheap after the first call.
// REQUIRES: no process from which this one was forked, without exec, has called it: CUDA does not work in
// forked children.
int gpu_count();
// The reason why gpu_count() is 0 although this machine seems to have GPUs: CUDA's message, or a driver's
// devices for which this build has no code. Empty if there are no GPUs, and if they can be used.
std::string gpu_fault();

// Makes tensors on `device` possible: nothing for the CPU; for a GPU loads libtorch's kernels, once per
// process, in about 0.2 s. Call it before the first operation on a GPU tensor. Thread-safe. InputError
// if this was built without CUDA or there is no such GPU; RunError naming the library that cannot be
// loaded.
void prepare_device(const c10::Device& device);

// The reason why libtorch's GPU kernels cannot be loaded, naming the missing library; empty once they are.
std::string kernels_fault();

// Makes all following GPU operations of this process deterministic (equal inputs give equal bits), at the
// cost of speed: attention's backward adds in a fixed order. CPU operations always are. Call it before the
// first operation.
void make_deterministic();

// A dense one-dimensional tensor in host memory, to be filled and uploaded: page-locked if `device` is a
// GPU.
at::Tensor upload_buffer(int64_t elements, at::ScalarType dtype, const c10::Device& device);
// Copies the buffer's current content to `device`. A GPU copies it in the order of the current stream,
// without waiting: the buffer must not be written again, but may be released at once.
at::Tensor upload(const at::Tensor& buffer, const c10::Device& device);
// The same for numbers in any memory: a one-dimensional tensor.
at::Tensor to_device(std::span<const int64_t> values, const c10::Device& device);
at::Tensor to_device(std::span<const double> values, const c10::Device& device);

}  // namespace sluice::ops
