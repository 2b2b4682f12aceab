// How buffers in GPU memory travel.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sluice::transport {

enum class DeviceTransportKind : uint8_t {
  kAuto,        // NCCL where every rank has a GPU to itself and NCCL can be loaded, else through the host
  kNccl,        // straight between GPUs
  kHostStaged,  // through host memory and the host transport: for several ranks on one GPU
};

struct DeviceTransportOptions {
  DeviceTransportKind kind = DeviceTransportKind::kAuto;
  int device = 0;  // this rank's GPU
  // Of NCCL's kernels, by communicator; others: as many as NCCL likes. A kernel that waits for its peer holds
  // a multiprocessor with each of them.
  std::map<std::string, int> most_blocks;
  int64_t join_timeout_ns = 300'000'000'000;   // for all members to make a communicator
  int64_t issue_timeout_ns = 300'000'000'000;  // for NCCL to take an operation, connections included
};

}  // namespace sluice::transport
