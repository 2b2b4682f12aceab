// NCCL's functions, from the library that is loaded when a GPU is used. Only *_cuda.cpp files include this.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

namespace sluice::transport {

struct NcclApi {
  std::string fault;  // why the functions below cannot be called; empty when they can

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

// The library of this process, loaded at the first call. Thread-safe.
const NcclApi& nccl_api();

// Where the library is looked for when it is not in the process already, best first: beside the libtorch of
// this process (`torch_library` is the path of one of its libraries), whose build it was made for, then
// anywhere.
std::vector<std::string> nccl_paths(const std::string& torch_library);

}  // namespace sluice::transport
