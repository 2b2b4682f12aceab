// Transports for buffers in GPU memory. Both join through a host transport (Gloo; the fake in tests).
#pragma once

#include <memory>
#include <string>

#include "comm/transport.h"
#include "transport/device_transport_options.h"

namespace sluice::transport {

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

}  // namespace sluice::transport
