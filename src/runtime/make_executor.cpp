#include "runtime/make_executor.h"

#include <utility>

#include "base/error.h"
#ifdef SLUICE_CUDA
#include "runtime/device_executor.h"
#endif

namespace sluice::runtime {

std::unique_ptr<Executor> make_executor(const c10::Device& device, HostExecutor::Options options) {
  if (device.is_cpu()) return std::make_unique<HostExecutor>(std::move(options));
#ifdef SLUICE_CUDA
  return std::make_unique<DeviceExecutor>(
      DeviceExecutor::Options{device.index(), std::move(options.on_failure), options.watch});
#else
  throw base::InputError(
      "this was built without CUDA: set train.device = \"cpu\", or install the CUDA toolkit and build again");
#endif
}

}  // namespace sluice::runtime
