// GPUs as the rest sees them: how many, and libtorch's kernels for them.
//
// Programs are linked without libtorch's CUDA kernels, so that they start quickly and on machines that lack
// the libraries those need (docs/decisions/0003-cuda-build.md). Whoever wants a tensor on a GPU loads them.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>

namespace sluice::ops {

// GPUs that can be used; 0 without a driver or when this was built without CUDA. Cheap after the first call.
// REQUIRES: no process that this one was forked from, without exec, has called it: CUDA works in none of its
// children.
int gpu_count();
// Why gpu_count() is 0 though this machine seems to have GPUs: CUDA's words, or a driver's devices that this
// build has no code for. Empty where there are none, and where they can be used.
std::string gpu_fault();

// Makes tensors on `device` possible: nothing for the CPU; for a GPU loads libtorch's kernels, once a
// process, in about 0.2 s. Call it before the first operation on a GPU tensor. Thread-safe.
// Throws InputError when this was built without CUDA or there is no such GPU, RunError naming the library
// that cannot be loaded.
void prepare_device(const c10::Device& device);

// Why libtorch's kernels for GPUs cannot be loaded, naming what is missing; empty once they are.
std::string kernels_fault();

// From here on operations of this process on GPUs give the same bits for the same numbers, at the cost of
// speed: attention's backward adds in a fixed order. On the CPU they always do. Call it before the first
// operation.
void make_deterministic();

// A dense one-dimensional tensor in host memory to be filled and uploaded: page-locked where `device` is a
// GPU.
at::Tensor upload_buffer(int64_t elements, at::ScalarType dtype, const c10::Device& device);
// What the buffer holds now, on `device`. A GPU copies it in the order of the current stream and nobody
// waits: the buffer must not be written again, but may be let go of at once.
at::Tensor upload(const at::Tensor& buffer, const c10::Device& device);
// The same of numbers that lie elsewhere: one dimension.
at::Tensor to_device(std::span<const int64_t> values, const c10::Device& device);
at::Tensor to_device(std::span<const double> values, const c10::Device& device);

}  // namespace sluice::ops
