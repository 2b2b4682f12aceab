// Whether NCCL can be used in this process.
#pragma once

#include <string>

namespace sluice::transport {

// Built with CUDA only: why NCCL cannot be used in this process, empty when it can. Loads libnccl at the
// first call. Also tells it to keep concurrent communicators in the order of issue
// (NCCL_LAUNCH_ORDER_IMPLICIT, unless set already): ranks issue in one global order, and kernels that start
// in another could wait for each other for ever.
std::string nccl_fault();

// NCCL's version as this process would use it ("NCCL 2.28.9"), or why it can't be used. Loads it at the first
// call.
struct NcclFinding {
  std::string version;
  std::string fault;
};
NcclFinding find_nccl();

}  // namespace sluice::transport
