// The GPU transport: calls NCCL's communicators directly. Built with CUDA only.
#pragma once

#include <memory>

#include "comm/transport.h"
#include "transport/device_transport_options.h"

namespace sluice::transport {

// Joins the members of `host_world`, a host communicator of all ranks that distributes NCCL's unique ids. All
// members create communicators in the same order; each is an NCCL communicator, even of one rank.
//
// Operations are queued on the current CUDA stream and return once NCCL has accepted them. The returned
// Pending needs no wait: later work on that stream sees the result. Two peers connect at the first operation
// that needs it, because connecting all pairs would cost memory that most never use (runtime/connections.h
// connects those that are used). NCCL computes the sums
// here, so their last bits depend on ranks and topology. Gradient sums don't use them: pull and push are
// exchanges, whose receiver adds in a fixed order.
//
// A thread watches for errors that appear after an operation was queued (a dead peer, a broken network). The
// first error aborts every communicator of this transport, which ends kernels that wait for peers. From then
// on every call, and check(), throws RunError naming communicator and operation.
std::unique_ptr<comm::Transport> nccl_transport(std::unique_ptr<comm::Communicator> host_world,
                                                const DeviceTransportOptions& options);

}  // namespace sluice::transport
