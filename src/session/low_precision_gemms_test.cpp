#include "session/low_precision_gemms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "model/outline.h"
#include "strategy/cluster.h"

namespace sluice::session {
namespace {

using base::GemmFormat;
using strategy::Device;
using testing::ElementsAre;

cost::CostModel cost_of_h100() {
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", 1);
  return cost::CostModel(cost::analytic_options(
      model::named_outline("llama-7b"), cost::rates_of(cluster),
      {.device_bytes = cluster.device_memory_bytes, .element_bytes = 2}, std::vector<int>{1, 2}, 8));
}

LowPrecisionTask task_of(LowPrecisionTask::Layers layers = LowPrecisionTask::Layers::kMinimal) {
  return {.format = GemmFormat::kInt8,
          .layers = layers,
          .work = cost::Work::of(std::vector<int64_t>(8, 1024)),
          .world_size = 4};
}

std::vector<Device> devices_of(std::initializer_list<int> paces) {
  std::vector<Device> devices;
  for (const int pace : paces) devices.push_back({.slowdown_percent = pace});
  return devices;
}

size_t layers_of(const Device& device) {
  return device.low_precision ? device.low_precision->layers.size() : 0;
}

TEST(LowPrecisionGemms, AsFewLayersAsLetASlowerDeviceKeepPace) {
  const cost::CostModel cost = cost_of_h100();
  const LowPrecisionChoice choice = choose_low_precision(task_of(), devices_of({100, 100, 110, 125}), cost);
  ASSERT_EQ(choice.devices.size(), 4U);
  EXPECT_EQ(layers_of(choice.devices[0]), 0U);
  EXPECT_GT(layers_of(choice.devices[2]), 0U);
  EXPECT_GT(layers_of(choice.devices[3]), layers_of(choice.devices[2]));
  EXPECT_LT(layers_of(choice.devices[3]), 32U);
  ASSERT_EQ(choice.kinds.size(), 2U);
  for (const LowPrecisionChoice::Kind& kind : choice.kinds) {
    EXPECT_LE(kind.low_precision_ns, kind.fastest_ns);
    EXPECT_GT(kind.full_precision_ns, kind.fastest_ns);
    // One layer fewer would not suffice.
    const int64_t saved_ns = (kind.full_precision_ns - kind.low_precision_ns) / kind.layers;
    EXPECT_GT(kind.low_precision_ns + saved_ns, kind.fastest_ns - kind.layers);
  }
}

TEST(LowPrecisionGemms, AllThatSaveWhereNoneKeepPace) {
  const LowPrecisionChoice choice = choose_low_precision(task_of(), devices_of({100, 400}), cost_of_h100());
  EXPECT_EQ(layers_of(choice.devices[1]), 32U);
  EXPECT_GT(choice.kinds.front().low_precision_ns, choice.kinds.front().fastest_ns);
}

TEST(LowPrecisionGemms, ThoseThatAddLeastNoiseComeFirst) {
  LowPrecisionTask task = task_of();
  task.noise.assign(32, {1e-4, 1e-4, 1e-4});
  for (const int quiet : {5, 17, 30}) task.noise[static_cast<size_t>(quiet)] = {1e-6, 1e-6, 1e-6};
  const cost::CostModel cost = cost_of_h100();
  std::vector<int> chosen;
  for (int pace = 101; chosen.size() < 3; ++pace) {
    const auto narrow = choose_low_precision(task, devices_of({100, pace}), cost).devices[1].low_precision;
    if (narrow) chosen = narrow->layers;
  }
  EXPECT_THAT(chosen, ElementsAre(5, 17, 30));
  EXPECT_THAT(to_text(task, choose_low_precision(task, devices_of({100, 110}), cost)),
              testing::HasSubstr("int8 products in "));
}

// Noise of a forward product reaches every gradient; noise of an input gradient those of earlier layers;
// noise of a weight gradient its own alone.
TEST(LowPrecisionGemms, DepthDecidesWhatNoiseReaches) {
  std::vector<GemmNoise> noise{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 1, 0}};
  EXPECT_THAT(sensitivities(noise), ElementsAre(1, 0.5, 0.25, 1));
  // Noise also counts by the layer's part of the stream, and of the gradient.
  noise[0].of_activation = noise[1].of_gradient = 0.5;
  noise[2].gradient_squares = 5;
  EXPECT_THAT(sensitivities(noise), ElementsAre(0.5, 0.125, 0.625, 1));
}

TEST(LowPrecisionGemms, AllLayersOfAllDevicesWhereTheyAreAskedFor) {
  const cost::CostModel cost = cost_of_h100();
  const LowPrecisionChoice choice = choose_low_precision(task_of(LowPrecisionTask::Layers::kAll), {}, cost);
  ASSERT_EQ(choice.devices.size(), 4U);
  for (const Device& device : choice.devices) EXPECT_EQ(layers_of(device), 32U);
  EXPECT_TRUE(choose_low_precision(task_of(), {}, cost).devices.empty());
}

// One key is enough for 8-bit floats; the other formats are for devices that must keep up.
TEST(LowPrecisionGemms, FloatsOf8BitsAreForAllLayersUnlessToldOtherwise) {
  using enum base::GemmFormat;
  using config::LowPrecisionLayers;
  const auto all = [](base::GemmFormat format, LowPrecisionLayers layers) {
    return config::ParallelConfig{.low_precision_gemms = format, .low_precision_layers = layers}
        .rounds_all_layers();
  };
  EXPECT_TRUE(all(kFloat8, config::ParallelConfig{}.low_precision_layers));
  EXPECT_FALSE(all(kInt8, config::ParallelConfig{}.low_precision_layers));
  EXPECT_FALSE(all(kFloat8, LowPrecisionLayers::kMinimal));
  EXPECT_TRUE(all(kInt8, LowPrecisionLayers::kAll));
  EXPECT_FALSE(all(kAsComputed, LowPrecisionLayers::kAll));
}

TEST(LowPrecisionGemms, NoneWhoseTimesNobodyKnows) {
  LowPrecisionTask task = task_of();
  task.format = GemmFormat::kBFloat16;  // the format that these devices compute in anyway
  const LowPrecisionChoice choice = choose_low_precision(task, devices_of({100, 120}), cost_of_h100());
  EXPECT_EQ(layers_of(choice.devices[1]), 0U);
  task.layers = LowPrecisionTask::Layers::kAll;
  EXPECT_EQ(layers_of(choose_low_precision(task, devices_of({100, 120}), cost_of_h100()).devices[1]), 32U);
}

// Costs of plans: cells of the chosen layers take the format's times, all others are unchanged.
TEST(LowPrecisionGemms, CellsTakeWhatTheirLayersDo) {
  const cost::CostModel cost = cost_of_h100();
  const strategy::Scheme scheme{.pp = 2};
  strategy::Pipeline pipeline{.scheme = scheme, .ranks = {0, 1}};
  pipeline.device.low_precision = std::make_shared<const strategy::LowPrecisionGemms>(
      strategy::LowPrecisionGemms{GemmFormat::kInt8, {0, 1, 2}});
  const cost::CostModel narrow = cost.on(pipeline);
  const auto work = task_of().work;
  for (const cost::CellKind kind :
       {cost::CellKind::kForward, cost::CellKind::kBackwardInput, cost::CellKind::kBackwardWeight}) {
    const auto ns = [&](const cost::CostModel& model, int stage) {
      return model.cell_ns(scheme, kind, model.stage_run(scheme, stage), work);
    };
    EXPECT_LT(ns(narrow, 0), ns(cost, 0));
    EXPECT_EQ(ns(narrow, 1), ns(cost, 1));
  }
}

}  // namespace
}  // namespace sluice::session
