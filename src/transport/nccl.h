// The GPU transport: NCCL's communicators, called directly. Built with CUDA only.
#pragma once

#include <memory>

#include "comm/transport.h"
#include "transport/device_transport_options.h"

namespace sluice::transport {

// Joins the members of `host_world`, a host communicator of all ranks that carries unique ids. Communicators
// are made by all members in the same order; each is NCCL's own, also that of one rank.
//
// Operations go to the current CUDA stream. They return once NCCL has taken them, so what they return is done
// already: what is issued on that stream later sees the result. Connections between peers are made at the
// first operation that needs them: warming every pair would cost memory that most never use. Sums are NCCL's,
// so their last bits depend on ranks and topology (the sums of pull and push don't come here: they are
// exchanges, added in a fixed order by their receiver).
//
// A thread watches for errors that show after an operation was issued (a peer that died, a broken network).
// The first one aborts every communicator of this transport, which ends kernels that wait for peers; from
// then on each call, and check(), throws RunError naming communicator and operation.
std::unique_ptr<comm::Transport> nccl_transport(std::unique_ptr<comm::Communicator> host_world,
                                                const DeviceTransportOptions& options);

}  // namespace sluice::transport
