// Transports for buffers in GPU memory. Both join through a host transport (Gloo; the fake in tests).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "comm/transport.h"

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

struct DeviceTransport {
  std::unique_ptr<comm::Transport> transport;
  std::string detour;  // why kAuto goes through the host, the same on all ranks; empty: it does not
};

// Collective over the ranks of `host`, which must outlive the transport and its communicators. Operations
// are issued on the current CUDA stream of `device` (c10::cuda::getCurrentCUDAStream); they read and write
// their buffers in that stream's order, and so does everything issued on it afterwards.
// REQUIRES: ops::prepare_device was called for the device.
// Throws InputError when built without CUDA, or when NCCL was asked for and a rank has none or shares its
// GPU; RunError when ranks fail to join.
DeviceTransport device_transport(comm::Transport& host, const DeviceTransportOptions& options);

// NCCL's version as this process would use it ("NCCL 2.28.9"), or why it can't be used. Loads it at the first
// call.
struct NcclFinding {
  std::string version;
  std::string fault;
};
NcclFinding find_nccl();

}  // namespace sluice::transport
