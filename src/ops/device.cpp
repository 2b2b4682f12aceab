#include "ops/device.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <filesystem>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/text.h"

#ifdef SLUICE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace sluice::ops {

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
  std::call_once(loaded, load_kernels);
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
