// Whether NCCL can be used in this process.
#pragma once

#include <string>

namespace sluice::transport {

// Built with CUDA only: why this process cannot use NCCL; empty if it can. Loads libnccl at the first call.
// Also makes NCCL keep concurrent communicators in the order of issue (NCCL_LAUNCH_ORDER_IMPLICIT, unless the
// variable is already set). Ranks issue in one global order; kernels that start in another order could
// deadlock, each waiting for another.
std::string nccl_fault();

// The version of NCCL that this process would use ("NCCL 2.28.9"), or why it cannot use NCCL. Loads NCCL at
// the first call.
struct NcclFinding {
  std::string version;
  std::string fault;
};
NcclFinding find_nccl();

}  // namespace sluice::transport
