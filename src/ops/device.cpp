#include "ops/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>

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
  return at::empty({elements}, at::TensorOptions().dtype(dtype).pinned_memory(!device.is_cpu()));
}

at::Tensor upload(const at::Tensor& buffer, const c10::Device& device) {
  return buffer.to(device, /*non_blocking=*/true);
}

namespace {

template <typename Number>
at::Tensor numbers_on(std::span<const Number> values, at::ScalarType dtype, const c10::Device& device) {
  const at::Tensor host = upload_buffer(static_cast<int64_t>(values.size()), dtype, device);
  std::ranges::copy(values, host.mutable_data_ptr<Number>());
  return upload(host, device);
}

}  // namespace

at::Tensor to_device(std::span<const int64_t> values, const c10::Device& device) {
  return numbers_on(values, at::kLong, device);
}

at::Tensor to_device(std::span<const double> values, const c10::Device& device) {
  return numbers_on(values, at::kDouble, device);
}

namespace {

// NVIDIA's driver makes a file for each GPU, even for GPUs that this process may not use.
bool has_gpu_files() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    const bool numbered = name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (name.starts_with("nvidia") && numbered) return true;
  }
  return false;
}

}  // namespace

#ifdef SLUICE_CUDA

namespace {

// The version of NVIDIA's kernel driver from its /proc file: "580.65.06". Empty if there is none.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    const bool numbered = word.find_first_not_of("0123456789.") == std::string::npos;
    if (numbered && word.find('.') != std::string::npos) return word;
  }
  return "";
}

// CUDA 13 requires this version.
constexpr int kLeastDriver = 580;

std::string driver_text() {
  const std::string needed = base::text("NVIDIA's driver ", kLeastDriver, " or newer is needed");
  const std::string version = driver_version();
  if (version.empty()) return "; " + needed;
  const int64_t major = base::parse_integer(version.substr(0, version.find('.'))).value_or(kLeastDriver);
  return major < kLeastDriver ? base::text("; ", needed, ", this one is ", version)
                              : base::text("; the driver is ", version);
}

// CUDA's answer to a process's first question.
struct FirstAnswer {
  int count = 0;
  std::string fault;
  pid_t process = ::getpid();
};

FirstAnswer ask_cuda() {
  // Read when the driver starts. With the default of eight queues for all streams, the copies of one stream
  // would wait behind the kernels of another.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*replace=*/0);
  FirstAnswer answer;
  const cudaError_t error = cudaGetDeviceCount(&answer.count);
  if (error == cudaSuccess) return answer;
  answer.count = 0;
  const bool says_none = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver;
  if (!says_none || has_gpu_files())
    answer.fault = base::text("CUDA says: ", cudaGetErrorString(error), driver_text());
  return answer;
}

const FirstAnswer& first_answer() {
  static const FirstAnswer answer = ask_cuda();
  SLUICE_ASSERT(answer.process == ::getpid(), "CUDA was started in a process that forked this one");
  return answer;
}

// libtorch's kernels lie beside libtorch_cpu, wherever that was loaded from.
std::filesystem::path libtorch_folder() {
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) != 0;
  SLUICE_ASSERT(found, "libtorch is not in any loaded library");
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace

// Loads the library, which registers its kernels. No function of it is called by name, and it stays loaded.
std::string kernels_fault() {
  const std::string path = libtorch_folder() / "libtorch_cuda.so";
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return "";
  return base::text("libtorch's CUDA kernels cannot be loaded: ", ::dlerror(),
                    "; tools/bootstrap --cuda installs what they need");
}

int gpu_count() { return first_answer().count; }
std::string gpu_fault() { return first_answer().fault; }

void prepare_device(const c10::Device& device) {
  if (!device.is_cuda()) return;
  if (device.index() >= gpu_count()) {
    throw base::InputError(base::text("there is no GPU ", static_cast<int>(device.index()), ", only ",
                                      gpu_count(), ": set train.device = \"cpu\", or check the driver"));
  }
  static std::once_flag loaded;
  std::call_once(loaded, [] {
    // Micro-batches differ in length, so fixed segments would fragment. The user's own settings stay.
    if (c10::CachingAllocator::getAllocatorSettings().empty()) {
      c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
    }
    // If cuBLAS splits a product's inner dimension, the partial sums are added in float.
    at::globalContext().setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
    if (const std::string fault = kernels_fault(); !fault.empty()) throw base::RunError(fault);
  });
}

#else

int gpu_count() { return 0; }
std::string kernels_fault() { return "this was built without CUDA"; }
std::string gpu_fault() { return has_gpu_files() ? "this was built without CUDA" : ""; }

void prepare_device(const c10::Device& device) {
  if (device.is_cpu()) return;
  throw base::InputError(
      "this was built without CUDA: set train.device = \"cpu\", or install the CUDA toolkit and build again");
}

#endif

}  // namespace sluice::ops
