#include "profile/device_check.h"

#include <gtest/gtest.h>

namespace sluice::profile {
namespace {

TEST(DeviceCheck, AProcessorComputesRight) {
  const std::vector<DeviceCheck> checks = check_device(c10::kCPU);
  ASSERT_EQ(checks.size(), 3);
  for (const DeviceCheck& check : checks) {
    EXPECT_EQ(check.fault, "") << check.what;
    EXPECT_NE(check.figure, "") << check.what;
  }
  EXPECT_EQ(checks[1].what, "attention");
}

TEST(DeviceCheck, ThreadsOfOneProcessSumOverGloo) {
  const DeviceCheck check = check_collective({c10::kCPU, c10::kCPU, c10::kCPU});
  EXPECT_EQ(check.fault, "");
  EXPECT_EQ(check.figure, "Gloo, a sum over 3 threads");
}

TEST(DeviceCheck, ADeviceThatIsNotThereIsAFault) {
  const c10::Device device(c10::kCUDA, 31);
  for (const DeviceCheck& check : check_device(device)) EXPECT_NE(check.fault, "") << check.what;
  EXPECT_NE(check_collective({device}).fault, "");
}

}  // namespace
}  // namespace sluice::profile
