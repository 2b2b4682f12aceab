// Transports for buffers in GPU memory. Both connect through a host transport (Gloo; the fake in tests).
#pragma once

#include <memory>
#include <string>

#include "comm/transport.h"
#include "transport/device_transport_options.h"

namespace sluice::transport {

struct DeviceTransport {
  std::unique_ptr<comm::Transport> transport;
  std::string detour;  // why kAuto stages through the host, the same on all ranks; empty: NCCL is used
};

// Collective over the ranks of `host`, which must outlive the transport and its communicators. Operations are
// issued on the current CUDA stream of `device` (c10::cuda::getCurrentCUDAStream). They read and write their
// buffers in that stream's order, so work that is issued on it later sees the results.
// REQUIRES: ops::prepare_device was called for the device.
// Throws InputError if built without CUDA, or if NCCL was requested and a rank has no NCCL or shares its GPU;
// RunError if ranks fail to join.
DeviceTransport device_transport(comm::Transport& host, const DeviceTransportOptions& options);

}  // namespace sluice::transport
