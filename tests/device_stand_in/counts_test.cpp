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
  options.evaluates = false;
  options.sequences = 6;
  options.max_tokens = 4096;
  options.model.layers = kLayers;
  return options;
}

struct PerLayer {
  double forward = 0, backward = 0, waits = 0;
};

// Means of a rank's layer, the ends shared out among the layers.
PerLayer per_layer(const RunOptions& options) {
  Devices devices;
  devices.counts = true;
  const DeviceRun run = run_on_stand_ins(options, devices);
  EXPECT_TRUE(run.faults.empty()) << text_of(run.faults);
  const auto layers = static_cast<double>(options.world_size * options.model.layers);
  PerLayer result;
  for (const auto& [kind, count] : run.counts) {
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
  EXPECT_LE(dense.forward, 15);
  EXPECT_LE(dense.backward, 14);
}

// Weights are coded once in a step, in each direction, whatever the number of micro-batches.
TEST(LayerCounts, DenseLayerOf8BitFloatsCodesItsWeightsOnce) {
  RunOptions options = counted(1, "<1,1,1>");
  options.low_precision = {{base::GemmFormat::kFloat8, {0, 1, 2, 3}}};
  const PerLayer one = per_layer(options);
  EXPECT_EQ(one.waits, 0);
  EXPECT_LE(one.forward, 25);
  EXPECT_LE(one.backward, 34);
  options.max_tokens = 48;
  options.sequences = 12;
  const PerLayer several = per_layer(options);
  options.low_precision = {};
  const PerLayer exact = per_layer(options);
  const double micro_batches = exact.forward / per_layer(counted(1, "<1,1,1>")).forward;
  EXPECT_GT(micro_batches, 1.5);
  constexpr double kMatrices = 4;
  EXPECT_NEAR(several.forward, micro_batches * (one.forward - kMatrices) + kMatrices, 1);
  EXPECT_NEAR(several.backward, micro_batches * (one.backward - kMatrices) + kMatrices, 1);
}

TEST(LayerCounts, RecurrentLayerWaitsForNothing) {
  RunOptions options = counted(1, "<1,1,1>");
  options.model.recurrent = {
      .key_heads = 4, .value_heads = 12, .key_width = 4, .value_width = 3, .convolution = 6};
  options.model.block_types.assign(kLayers, {.recurrent = true});
  const PerLayer recurrent = per_layer(options);
  EXPECT_EQ(recurrent.waits, 0);
  EXPECT_LE(recurrent.forward, 123);
  EXPECT_LE(recurrent.backward, 360);
}

// All experts are computed at once: their number changes nothing.
TEST(LayerCounts, ExpertsWaitForNothing) {
  RunOptions options = counted(1, "<1,1,1>");
  options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true};
  const PerLayer few = per_layer(options);
  options.model.experts.count = 32;
  const PerLayer many = per_layer(options);
  EXPECT_EQ(few.waits, 0);
  EXPECT_EQ(many.waits, 0);
  EXPECT_LE(few.forward, 35);
  EXPECT_LE(few.backward, 54);
  EXPECT_EQ(many.forward, few.forward);
  EXPECT_EQ(many.backward, few.backward);
}

// Corrections, groups, shared experts and the balancing loss count assignments on the device.
TEST(LayerCounts, ExpertsOfEveryKindWaitForNothing) {
  RunOptions options = counted(1, "<1,1,1>");
  options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true, .shared_hidden = 6};
  options.model.experts.sigmoid = options.model.experts.corrected = true;
  options.model.experts.groups = 4;
  options.model.experts.groups_chosen = 2;
  options.moe_router_bias_update_rate = 1e-3;
  EXPECT_EQ(per_layer(options).waits, 0);
  options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .shared_hidden = 6, .shared_gate = true};
  options.moe_router_bias_update_rate = 0;
  options.moe_aux_loss_coeff = 0.1;
  EXPECT_EQ(per_layer(options).waits, 0);
}

// As many layers and experts as Qwen3-30B-A3B has, with narrow tensors: launches do not depend on widths.
TEST(LayerCounts, MicroBatchOfQwen3Of30BTakesFewLaunches) {
  RunOptions options = counted(1, "<1,1,1>");
  options.model.layers = 48;
  options.model.qk_norm = model::QkNorm::kEachHead;
  options.model.experts = {.count = 128, .per_token = 8, .hidden = 6, .normalised = true};
  const PerLayer layer = per_layer(options);
  EXPECT_EQ(layer.waits, 0);
  EXPECT_LE(48 * (layer.forward + layer.backward), 5000);
}

// The host reads the counts of all assignments once, in the forward.
TEST(LayerCounts, ExpertsThatLanesDivideWaitOnce) {
  RunOptions options = counted(4, "<1,1,4,4,4>");
  options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true};
  const PerLayer divided = per_layer(options);
  EXPECT_LE(divided.waits, 1);
  EXPECT_LE(divided.forward, 102);
  EXPECT_LE(divided.backward, 131);
}

}  // namespace
}  // namespace sluice::stand_in
