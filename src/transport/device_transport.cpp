#include "transport/device_transport.h"

#include "base/error.h"
#include "transport/nccl_finding.h"

namespace sluice::transport {

#ifndef SLUICE_CUDA

NcclFinding find_nccl() { return {"", "this was built without CUDA"}; }

DeviceTransport device_transport(comm::Transport& /*host*/, const DeviceTransportOptions& /*options*/) {
  throw base::InputError(
      "this was built without CUDA: set train.device = \"cpu\", or install the CUDA toolkit and build again");
}

#endif

}  // namespace sluice::transport
