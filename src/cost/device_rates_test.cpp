#include "cost/device_rates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost/analytic.h"
#include "cost/shipped.h"
#include "model/outline.h"

namespace sluice::cost {
namespace {

constexpr int kWidest = 4096;

const AttentionKernel& kernel(const std::string& cluster, int64_t width) {
  return kernel_of_width(rates_of_devices(strategy::cluster_preset(cluster, 1)).attention, width);
}

TEST(DeviceRates, PresetsAttainTheProductsOfTheirDevices) {
  for (const char* name : {"a100x8", "a800x8", "h100x8", "h200x8", "b200x8"}) {
    const strategy::Cluster cluster = strategy::cluster_preset(name, 1);
    EXPECT_EQ(cluster.flops_per_ns, rates_of_devices(cluster).product_flops_per_ns) << name;
    EXPECT_FALSE(rates_of_devices(cluster).product_source.empty()) << name;
  }
}

// A further wave of forward and backward took 1.8 to 2.4 ms a layer on H200, and a forward is a third of it.
TEST(DeviceRates, HostsOfGpusNeedTimeForAStepOfARing) {
  EXPECT_GE(3 * host_rates().ring_step_ns, 1.8e6);
  EXPECT_LE(3 * host_rates().ring_step_ns, 2.4e6);
  EXPECT_EQ(rates_of(strategy::cluster_preset("h200x8", 1)).ring_step_ns, host_rates().ring_step_ns);
  EXPECT_EQ(rates_of(strategy::cluster_preset("local", 1)).ring_step_ns, 0)
      << "a CPU computes what it starts";
  const std::vector<int> degrees = {1};
  const CostModel::Options options =
      analytic_options(model::named_outline("llama-7b"), rates_of(strategy::cluster_preset("h200x8", 1)),
                       {.device_bytes = 1, .element_bytes = 2}, degrees, 8);
  EXPECT_EQ(static_cast<double>(options.ring_step_ns), host_rates().ring_step_ns);
}

TEST(DeviceRates, NamesOfClustersHaveTheDevicesNameInThem) {
  strategy::Cluster cluster{.name = "our H200 pod"};
  EXPECT_EQ(rates_of_devices(cluster).device, "h200");
  cluster.name = "somebody's accelerators";
  EXPECT_EQ(rates_of_devices(cluster).device, "a100");
  // The fastest kind of node decides.
  EXPECT_EQ(rates_of_devices(strategy::cluster_preset("1x a800x8 + 2x h100x8", 1)).device, "h100");
  EXPECT_TRUE(is_cpu(strategy::cluster_preset("local", 1)));
  EXPECT_FALSE(is_cpu(cluster));
}

TEST(DeviceRates, KernelsAreTheNarrowestThatHoldAHead) {
  EXPECT_EQ(kernel("h100x8", 64).width, 64);
  EXPECT_EQ(kernel("h100x8", 65).width, 128);
  EXPECT_EQ(kernel("h100x8", kWidest).width, 256);
  for (const DeviceRates& device : device_rates()) {
    for (size_t i = 1; i < device.attention.size(); ++i)
      EXPECT_LT(device.attention[i - 1].width, device.attention[i].width) << device.device;
    for (const AttentionKernel& each : device.attention) {
      EXPECT_GT(each.forward.flops_per_ns, 0) << device.device;
      EXPECT_GT(each.backward.flops_per_ns, 0) << device.device;
      EXPECT_FALSE(each.source.empty()) << device.device;
    }
  }
}

TEST(DeviceRates, LaterDevicesAttendFaster) {
  const char* names[] = {"a800x8", "h100x8", "h200x8", "b200x8"};
  for (size_t i = 1; i < std::size(names); ++i) {
    EXPECT_LT(kernel(names[i - 1], 128).forward.flops_per_ns, kernel(names[i], 128).forward.flops_per_ns);
    EXPECT_LT(kernel(names[i - 1], 128).backward.flops_per_ns, kernel(names[i], 128).backward.flops_per_ns);
  }
}

OperationTimes block_times(const strategy::Cluster& cluster, int64_t head_dim) {
  model::Outline outline = model::named_outline("llama-7b");
  outline.head_dim = head_dim;
  outline.heads = outline.kv_heads = 4096 / head_dim;
  const std::vector<int> degrees = {1};
  return analytic_options(outline, rates_of(cluster), {.device_bytes = 1, .element_bytes = 2}, degrees, 8)
      .kinds_by_tp.at(1)[1]
      .times;
}

TEST(Analytic, AttentionIsPricedByWidthLengthDirectionAndMachine) {
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", 1);
  const AttentionKernel& of_128 = kernel("h100x8", 128);
  const OperationTimes times = block_times(cluster, 128);
  EXPECT_EQ(times.forward.a, Quadratic::from_ns(2.0 * 4096 / of_128.forward.flops_per_ns, 0, 0).a);
  EXPECT_EQ(times.backward_input.a, Quadratic::from_ns(5.0 * 4096 / of_128.backward.flops_per_ns, 0, 0).a);
  // 42 heads of 96 take as long as 42 of 128.
  EXPECT_EQ(block_times(cluster, 96).forward.a,
            Quadratic::from_ns(2.0 * 42 * 96 / (of_128.forward.flops_per_ns * (96.0 / 128)), 0, 0).a);
  // Machines whose products are slower attend more slowly too.
  strategy::Cluster slower = cluster;
  slower.flops_per_ns /= 2;
  EXPECT_NEAR(static_cast<double>(block_times(slower, 128).forward.a),
              2.0 * static_cast<double>(times.forward.a), 2);
}

TEST(Analytic, ShortSequencesAttainLessOfTheKernel) {
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", 1);
  const AttentionRate rate = kernel("h100x8", 128).forward;
  Rates without = rates_of(cluster);
  for (AttentionKernel& each : without.attention_kernels)
    each.forward.half_length_tokens = each.backward.half_length_tokens = 0;
  const model::Outline outline = model::named_outline("llama-7b");
  const std::vector<int> degrees = {1};
  const auto b_of = [&](const Rates& rates) {
    return analytic_options(outline, rates, {.device_bytes = 1, .element_bytes = 2}, degrees, 8)
        .kinds_by_tp.at(1)[1]
        .times.forward.b;
  };
  const double more = 2.0 * 4096 / rate.flops_per_ns * rate.half_length_tokens;
  EXPECT_NEAR(std::ldexp(static_cast<double>(b_of(rates_of(cluster)) - b_of(without)), -32), more, 1e-6);
}

// a800-13b is not among what the rates were fitted on.
TEST(Analytic, ShippedFitsAreMetWithinFifteenPercent) {
  const strategy::Cluster cluster = strategy::cluster_preset("a800x8", 1);
  const std::vector<int> degrees = {1, 2, 4, 8};
  for (const char* size : {"7b", "13b", "32b"}) {
    const CostModel fit(shipped(std::string("a800-") + size).options);
    const CostModel cost(analytic_options(
        model::named_outline(std::string("llama-") + size), rates_of(cluster),
        {.device_bytes = cluster.device_memory_bytes, .element_bytes = 2}, degrees, cluster.topology()));
    for (const auto& [scheme, row] : fit.options().scheme_times) {
      if (row.derived || scheme.first > 8) continue;
      for (const int64_t length : {4096, 8192, 16384, 32768}) {
        const std::vector<int64_t> lengths = {length};
        const auto ours =
            static_cast<double>(cost.stage_times({.tp = scheme.first, .pp = scheme.second}, scheme.second / 2)
                                    .of_sequences(lengths));
        EXPECT_LE(std::abs(std::log(ours / static_cast<double>(row.stage.of_sequences(lengths)))), 0.15)
            << size << " tp " << scheme.first << " pp " << scheme.second << " length " << length;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cost
