#include "runtime/make_executor.h"

#include <utility>

#include "base/error.h"
#include "runtime/device_executor.h"

namespace sluice::runtime {

std::unique_ptr<Executor> make_executor(const c10::Device& device, HostExecutor::Options options) {
  if (device.is_cpu()) return std::make_unique<HostExecutor>(std::move(options));
#ifndef SLUICE_CUDA
  if (device.is_cuda()) {
    throw base::InputError(
        "this was built without CUDA: set train.device = \"cpu\", or install the CUDA toolkit and build "
        "again");
  }
#endif
  return std::make_unique<DeviceExecutor>(
      DeviceExecutor::Options{device, std::move(options.on_failure), options.watch});
}

}  // namespace sluice::runtime
