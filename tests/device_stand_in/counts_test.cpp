// What a layer asks of a device: launches, and how often the host waits inside of it.
#include <gtest/gtest.h>

#include "cluster.h"
#include "runtime/test_features.h"

namespace sluice::stand_in {
namespace {

using runtime::RunOptions;

constexpr int64_t kLayers = 4;

// One micro-batch a step, of one rank unless said.
RunOptions counted(int world, const std::string& strategy) {
  RunOptions options = runtime::short_run(world, {strategy});
  options.steps = 1;
  options.sequences = 6;
  options.max_tokens = 4096;
  options.model.layers = kLayers;
  return options;
}

struct PerLayer {
  double forward = 0, backward = 0, waits = 0;
};

// A layer's share of a micro-batch's work, that of the ends included.
PerLayer per_layer(const RunOptions& options) {
  Devices devices;
  devices.counts = true;
  const DeviceRun run = run_on_stand_ins(options, devices);
  EXPECT_TRUE(run.faults.empty()) << text_of(run.faults);
  PerLayer result;
  for (const auto& [kind, count] : run.counts) {
    const auto layers = static_cast<double>(count.nodes * kLayers);
    if (kind == "forward") result.forward = static_cast<double>(count.launches) / layers;
    if (kind == "backward") result.backward = static_cast<double>(count.launches) / layers;
    if (kind == "forward" || kind == "backward") result.waits += static_cast<double>(count.waits()) / layers;
  }
  return result;
}

// The bars are what was counted: they are there to be lowered.
TEST(LayerCounts, DenseLayerWaitsForNothing) {
  const PerLayer dense = per_layer(counted(1, "<1,1,1>"));
  EXPECT_EQ(dense.waits, 0);
  EXPECT_LE(dense.forward, 44);
  EXPECT_LE(dense.backward, 56);
}

TEST(LayerCounts, RecurrentLayerWaitsForNothing) {
  RunOptions options = counted(1, "<1,1,1>");
  options.model.recurrent = {
      .key_heads = 4, .value_heads = 12, .key_width = 4, .value_width = 3, .convolution = 6};
  options.model.block_types.assign(kLayers, {.recurrent = true});
  const PerLayer recurrent = per_layer(options);
  EXPECT_EQ(recurrent.waits, 0);
  EXPECT_LE(recurrent.forward, 64);
  EXPECT_LE(recurrent.backward, 162);
}

// The host must know how many rows visit each expert, and launches products for each.
TEST(LayerCounts, ExpertsWaitForTheirCounts) {
  RunOptions options = counted(1, "<1,1,1>");
  options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true};
  const PerLayer few = per_layer(options);
  options.model.experts.count = 32;
  const PerLayer many = per_layer(options);
  EXPECT_LE(few.waits, 2.5);
  EXPECT_EQ(few.waits, many.waits);
  EXPECT_LE(few.forward, 64);
  EXPECT_LE(few.backward, 112);
  EXPECT_LE(many.forward, 104);
  EXPECT_LE(many.backward, 246);
}

TEST(LayerCounts, ExpertsThatLanesDivideWaitOften) {
  RunOptions options = counted(4, "<1,1,4,4,4>");
  options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true};
  const PerLayer divided = per_layer(options);
  EXPECT_LE(divided.waits, 34);
  EXPECT_LE(divided.forward, 183);
  EXPECT_LE(divided.backward, 281);
}

}  // namespace
}  // namespace sluice::stand_in
