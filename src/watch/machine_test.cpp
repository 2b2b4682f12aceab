#include "watch/machine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "watch/gpu_health.h"

namespace sluice::watch {
namespace {

void compute_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  volatile double value = 1;
  while (std::chrono::steady_clock::now() < end) value = value * 1.000001;
}

TEST(MachineWatch, TellsAProcessThatComputesFromOneThatSleeps) {
  MachineWatch machine("", std::chrono::milliseconds(50));
  Sample busy, idle, at_once;
  compute_for(std::chrono::milliseconds(60));
  machine.take(busy);
  machine.take(at_once);
  EXPECT_EQ(at_once[Figure::kProcessors], busy[Figure::kProcessors]) << "too soon to look again";
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  machine.take(idle);
  EXPECT_GT(busy[Figure::kProcessors], 2 * idle[Figure::kProcessors]);
  EXPECT_GT(busy[Figure::kResident], 0);
  EXPECT_GE(busy[Figure::kMajorFaults], 0);
  EXPECT_EQ(busy[Figure::kGpuClock], Sample::kUnknown);
}

TEST(GpuHealth, IsNoneWithoutALibraryOrAGpu) {
  EXPECT_EQ(GpuHealth::open("0000:3b:00.0", "libthere-is-none.so"), nullptr);
}

#ifdef SLUICE_NVML_STAND_IN
// A stand-in library with NVML's function names, one GPU at 0000:3b:00.0, and fixed figures
// (tests/watch/nvml_stand_in.cpp).
TEST(GpuHealth, ReadsWhatTheLibrarySays) {
  EXPECT_EQ(GpuHealth::open("0000:ff:00.0", SLUICE_NVML_STAND_IN), nullptr) << "another GPU";
  const auto gpu = GpuHealth::open("0000:3b:00.0", SLUICE_NVML_STAND_IN);
  ASSERT_NE(gpu, nullptr);
  Sample sample;
  gpu->take(sample);
  EXPECT_EQ(sample[Figure::kGpuClock], 1410);
  EXPECT_EQ(sample[Figure::kGpuPower], 312);
  EXPECT_EQ(sample[Figure::kGpuTemperature], 71);
  EXPECT_EQ(sample[Figure::kGpuThrottled], 0x20);
  EXPECT_EQ(sample[Figure::kGpuEccErrors], Sample::kUnknown) << "not supported there";
  EXPECT_EQ(sample[Figure::kGpuPcieLanes], 8);
  EXPECT_EQ(sample[Figure::kGpuNvlinkErrors], 2 * (3 + 5)) << "of two links";
}
#endif

}  // namespace
}  // namespace sluice::watch
