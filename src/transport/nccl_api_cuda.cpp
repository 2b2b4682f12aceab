#include <dlfcn.h>

#include <cstdlib>

#include "base/text.h"
#include "transport/nccl.h"
#include "transport/nccl_api.h"

namespace sluice::transport {
namespace {

// The first that keeps several communicators in the order of issue.
constexpr int kOldestVersion = NCCL_VERSION(2, 26, 0);

// libtorch's kernels have brought libnccl into the process where they came from wheels; else the system's.
NcclApi load() {
  NcclApi api;
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*replace=*/0);
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW);
  if (library == nullptr) {
    api.fault = base::text("NCCL cannot be loaded: ", ::dlerror(), "; tools/bootstrap --cuda installs it");
    return api;
  }
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

const NcclApi& nccl_api() {
  static const NcclApi api = load();
  return api;
}

std::string nccl_fault() { return nccl_api().fault; }

}  // namespace sluice::transport
