#include "ops/device.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::ops {
namespace {

TEST(Device, ProcessorNeedsNoPreparation) { EXPECT_NO_THROW(prepare_device(c10::kCPU)); }

TEST(Device, GpuThatIsNotThereIsTheUsersMistake) {
  const auto missing = static_cast<c10::DeviceIndex>(gpu_count());
  EXPECT_THROW(prepare_device({c10::kCUDA, missing}), base::InputError);
}

}  // namespace
}  // namespace sluice::ops
