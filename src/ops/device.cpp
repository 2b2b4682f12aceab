#include "ops/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/text.h"

#ifdef SLUICE_CUDA
#include <c10/core/AllocatorConfig.h>
#include <cuda_runtime_api.h>
#endif

namespace sluice::ops {

void make_deterministic() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);  // its sums then don't depend on streams
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

at::Tensor upload_buffer(int64_t elements, at::ScalarType dtype, const c10::Device& device) {
  return at::empty({elements}, at::TensorOptions().dtype(dtype).pinned_memory(device.is_cuda()));
}

at::Tensor upload(const at::Tensor& buffer, const c10::Device& device) {
  return buffer.to(device, /*non_blocking=*/true);
}

#ifdef SLUICE_CUDA

namespace {

// libtorch's kernels lie beside libtorch_cpu, wherever that was loaded from.
std::filesystem::path libtorch_folder() {
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) != 0;
  SLUICE_ASSERT(found, "libtorch is not in any loaded library");
  return std::filesystem::path(info.dli_fname).parent_path();
}

// The library registers its kernels when it is loaded; nothing of it is called by name, and it stays.
void load_kernels() {
  const std::string path = libtorch_folder() / "libtorch_cuda.so";
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw base::RunError(base::text("libtorch's CUDA kernels cannot be loaded: ", ::dlerror(),
                                    "; tools/bootstrap --cuda installs what they need"));
  }
}

}  // namespace

int gpu_count() {
  static const int count = [] {
    // Read when the driver starts. By default eight queues serve all streams, and the copies of one then wait
    // behind the kernels of another.
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*replace=*/0);
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
  }();
  return count;
}

void prepare_device(const c10::Device& device) {
  if (!device.is_cuda()) return;
  if (device.index() >= gpu_count()) {
    throw base::InputError(base::text("there is no GPU ", static_cast<int>(device.index()), ", only ",
                                      gpu_count(), ": set train.device = \"cpu\", or check the driver"));
  }
  static std::once_flag loaded;
  std::call_once(loaded, [] {
    // Micro-batches differ in length: segments of fixed size would fall to pieces. What the user set stays.
    if (c10::CachingAllocator::getAllocatorSettings().empty()) {
      c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
    }
    load_kernels();
  });
}

#else

int gpu_count() { return 0; }

void prepare_device(const c10::Device& device) {
  if (device.is_cpu()) return;
  throw base::InputError(
      "this was built without CUDA: set train.device = \"cpu\", or install the CUDA toolkit and build again");
}

#endif

}  // namespace sluice::ops
