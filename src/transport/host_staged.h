// A transport for GPU buffers that goes through host memory: for several ranks on one GPU, where NCCL cannot
// work, and for machines without NCCL. Slow and simple.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace sluice::transport {

// Wraps `host`, which must outlive the transport and its communicators. Each operation waits for the current
// stream, copies to pinned memory, runs on the host transport to its end, and copies back before it returns:
// nothing is pending then. Sums are the host transport's, in member order. Buffers in host memory work too.
// Operations of several communicators block the issuing thread one after another, so all ranks issue them in
// one global order (the step graph's seq). Made for GPU `device`; built with CUDA only.
std::unique_ptr<comm::Transport> host_staged_transport(comm::Transport& host, int device);

}  // namespace sluice::transport
