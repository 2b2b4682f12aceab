#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "transport/nccl_api.h"
#include "transport/nccl_finding.h"

namespace sluice::transport {
namespace {

// The oldest version that keeps several communicators in the order of issue.
constexpr int kOldestVersion = NCCL_VERSION(2, 26, 0);
constexpr const char* kLibrary = "libnccl.so.2";

std::string torch_library() {
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&c10::cuda::device_count), &info) != 0;
  SLUICE_ASSERT(found, "libtorch is not in any loaded library");
  return info.dli_fname;
}

// Null, with the reason in `fault`, if there is none.
void* open_library(std::string& fault) {
  // If libtorch's kernels are loaded, they have already brought NCCL into the process.
  if (void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD)) return library;
  for (const std::string& path : nccl_paths(torch_library())) {
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW)) return library;
  }
  fault = base::text("NCCL cannot be loaded: ", ::dlerror(), "; tools/bootstrap --cuda installs it");
  return nullptr;
}

NcclApi load() {
  NcclApi api;
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*replace=*/0);
  void* library = open_library(api.fault);
  if (library == nullptr) return api;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && api.fault.empty()) api.fault = base::text("this NCCL has no ", name);
  };
  find(api.get_version, "ncclGetVersion");
  find(api.get_unique_id, "ncclGetUniqueId");
  find(api.init, "ncclCommInitRankConfig");
  find(api.finalize, "ncclCommFinalize");
  find(api.destroy, "ncclCommDestroy");
  find(api.abort, "ncclCommAbort");
  find(api.async_error, "ncclCommGetAsyncError");
  find(api.error_string, "ncclGetErrorString");
  find(api.last_error, "ncclGetLastError");
  find(api.group_start, "ncclGroupStart");
  find(api.group_end, "ncclGroupEnd");
  find(api.send, "ncclSend");
  find(api.receive, "ncclRecv");
  find(api.all_gather, "ncclAllGather");
  find(api.reduce_scatter, "ncclReduceScatter");
  int version = 0;
  if (api.fault.empty() && (api.get_version(&version) != ncclSuccess || version < kOldestVersion)) {
    api.fault =
        base::text("NCCL ", version, " is loaded, but ", kOldestVersion, " (2.26) is the oldest to do");
  }
  return api;
}

}  // namespace

std::vector<std::string> nccl_paths(const std::string& torch_library) {
  // …/site-packages/torch/lib/libc10_cuda.so and …/site-packages/nvidia/nccl/lib/libnccl.so.2
  const std::filesystem::path packages =
      std::filesystem::path(torch_library).parent_path().parent_path().parent_path();
  return {packages / "nvidia" / "nccl" / "lib" / kLibrary, kLibrary};
}

const NcclApi& nccl_api() {
  static const NcclApi api = load();
  return api;
}

std::string nccl_fault() { return nccl_api().fault; }

}  // namespace sluice::transport
