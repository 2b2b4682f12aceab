// A transport for GPU buffers that stages them in host memory: for several ranks on one GPU, which NCCL does
// not support, and for machines without NCCL. Slow and simple.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace sluice::transport {

// Wraps `host`, which must outlive the transport and its communicators. Each operation waits for the current
// stream, copies to pinned memory, completes on the host transport and copies back before it returns. So no
// operation is ever pending. Sums are the host transport's, in member order. Buffers in host memory work,
// too. Operations of several communicators block the issuing thread in turn, so all ranks must issue them in
// one global order (the step graph's seq). For GPU `device`; built with CUDA only.
std::unique_ptr<comm::Transport> host_staged_transport(comm::Transport& host, int device);

}  // namespace sluice::transport
