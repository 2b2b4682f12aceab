#include "transport/device_transport.h"

#include "base/error.h"

namespace sluice::transport {

#ifndef SLUICE_CUDA

std::unique_ptr<comm::Transport> device_transport(comm::Transport& /*host*/,
                                                  const DeviceTransportOptions& /*options*/) {
  throw base::InputError(
      "this was built without CUDA: set train.device = \"cpu\", or install the CUDA toolkit and build again");
}

#endif

}  // namespace sluice::transport
