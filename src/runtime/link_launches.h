// Launches of a link's copies and sums on a device.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "comm/transport.h"
#include "runtime/link_jobs.h"

namespace sluice::runtime {

// Issues on the current stream of the device. All lists lie in the device's memory and stay as they are until
// the stream has passed the launch. Jobs of a launch must not overlap each other.
class LinkLaunches {
 public:
  virtual ~LinkLaunches() = default;
  virtual void copies(const CopyJob* jobs, int64_t count) = 0;
  // Sums of elements of type `dtype`, to which `sources` points.
  virtual void sums(const SumJob* jobs, int64_t count, const void* const* sources, comm::DType dtype) = 0;
};

// The kernels of link_kernels.h; built with CUDA only.
std::unique_ptr<LinkLaunches> cuda_link_launches(const c10::Device& device);

}  // namespace sluice::runtime
