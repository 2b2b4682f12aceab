#include "strategy/device_peaks.h"

#include <gtest/gtest.h>

namespace sluice::strategy {
namespace {

TEST(DevicePeaks, AreFoundByTheDriversNames) {
  EXPECT_EQ(peak_flops_per_ns("NVIDIA H100 80GB HBM3"), 989.4e3);
  EXPECT_EQ(peak_flops_per_ns("NVIDIA H100 PCIe"), 756e3);
  EXPECT_EQ(peak_flops_per_ns("NVIDIA A100-SXM4-40GB"), 312e3);
  EXPECT_EQ(peak_flops_per_ns("NVIDIA GeForce RTX 4090"), 165.2e3);
  EXPECT_EQ(peak_flops_per_ns("NVIDIA L40S"), 362e3);
  EXPECT_EQ(peak_flops_per_ns("NVIDIA L4"), 121e3);
}

TEST(DevicePeaks, OfDevicesThatAreNotInTheTableAreUnknown) {
  for (const char* name : {"CPU", "", "NVIDIA A10G", "NVIDIA L40G", "GRID H2", "XA100", "local"})
    EXPECT_EQ(peak_flops_per_ns(name), std::nullopt) << name;
}

TEST(DevicePeaks, OfClustersAreSums) {
  EXPECT_EQ(peak_flops_per_ns(cluster_preset("a800x8", 2), 16), 16 * 312e3);
  EXPECT_EQ(peak_flops_per_ns(cluster_preset("local", 1), 4), std::nullopt);
  Cluster mixed = cluster_preset("h100x8", 3);
  mixed.kinds = {{.name = "h100", .nodes = 1}, {.name = "a100", .nodes = 2}};
  EXPECT_EQ(peak_flops_per_ns(mixed, 24), 8 * 989.4e3 + 16 * 312e3);
  EXPECT_EQ(peak_flops_per_ns(mixed, 8), 8 * 989.4e3);
  mixed.kinds[1].name = "somebody's";
  EXPECT_EQ(peak_flops_per_ns(mixed, 24), std::nullopt);
  EXPECT_EQ(peak_flops_per_ns(mixed, 8), 8 * 989.4e3) << "none of the others is asked for";
}

}  // namespace
}  // namespace sluice::strategy
