// The executor for a device.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "runtime/executor.h"

namespace sluice::runtime {

// HostExecutor for the CPU; DeviceExecutor for a GPU, which takes the same options.
// REQUIRES: ops::prepare_device(device) was called. Throws InputError for a GPU when built without CUDA.
std::unique_ptr<Executor> make_executor(const c10::Device& device, HostExecutor::Options options);

}  // namespace sluice::runtime
