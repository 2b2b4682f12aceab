// NCCL's functions, loaded from the library when a GPU is used. Only *_cuda.cpp files include this.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

namespace sluice::transport {

struct NcclApi {
  std::string fault;  // why the functions below cannot be called; empty if they can

  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
};

// This process's NCCL library, loaded at the first call. Thread-safe.
const NcclApi& nccl_api();

// Paths to try when the library is not yet in the process, best first. First comes the one beside this
// process's libtorch, which was built for it; `torch_library` is the path of one of libtorch's libraries. The
// second is a bare name, for which the dynamic loader searches everywhere.
std::vector<std::string> nccl_paths(const std::string& torch_library);

}  // namespace sluice::transport
