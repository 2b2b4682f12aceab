// Options for transferring buffers in GPU memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sluice::transport {

enum class DeviceTransportKind : uint8_t {
  kAuto,        // NCCL if every rank has its own GPU and can load NCCL, else kHostStaged
  kNccl,        // directly between GPUs
  kHostStaged,  // through host memory and the host transport: for several ranks on one GPU
};

struct DeviceTransportOptions {
  DeviceTransportKind kind = DeviceTransportKind::kAuto;
  int device = 0;  // this rank's GPU
  // Maximum of thread blocks of NCCL's kernels, by communicator name; for others NCCL chooses. Each block of
  // a kernel occupies a multiprocessor while the kernel waits for its peer.
  std::map<std::string, int> most_blocks;
  int64_t join_timeout_ns = 300'000'000'000;   // for all members to create a communicator
  int64_t issue_timeout_ns = 300'000'000'000;  // for NCCL to accept an operation, including connecting
};

}  // namespace sluice::transport
