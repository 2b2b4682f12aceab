// Clusters with several kinds of devices: each pipeline lies on one kind, and faster devices get more work.
#include "session/unequal_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cost/analytic.h"
#include "graph/build.h"
#include "graph/memory.h"
#include "model/outline.h"
#include "plan/batch_sample.h"
#include "session/candidates.h"
#include "strategy/cluster.h"

namespace sluice::session {
namespace {

using strategy::Device;

constexpr int kRanks = 16;

strategy::Cluster mixed_cluster() { return strategy::cluster_preset("1x h100x8 + 1x a800x8", 1); }

cost::CostModel mixed_cost() {
  const strategy::Cluster cluster = mixed_cluster();
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * 9,
                                    .element_bytes = 2,
                                    .host_bytes = cost::host_bytes_of(cluster)};
  return cost::CostModel(cost::analytic_options(model::named_outline("llama-7b"), cost::rates_of(cluster),
                                                memory, std::vector<int>{1, 2, 4, 8}, 8));
}

plan::PlannerOptions mixed_options() {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 400; ++i) lengths.push_back(64 + (i * 7919) % 4000);
  return {.world_size = kRanks,
          .devices = strategy::devices_of(mixed_cluster(), kRanks, 9),
          .policies = {{}, {.recompute_permille = 1000}},
          .context_length = 4096,
          .sample_batches =
              plan::stratified_batches(lengths, {.tokens_per_step = kRanks * 4096, .batches = 4, .seed = 3}),
          .max_cp = 0,
          .max_fsdp = 0};
}

double step_ms(const plan::Planner& planner, const plan::PlannerOptions& options,
               const std::vector<Device>& devices) {
  const model::ParameterTable table =
      model::parameter_table(planner.cost().options().model, planner.cost().program());
  double sum = 0;
  for (const auto& batch : options.sample_batches) {
    strategy::StepPlan plan = planner.plan(0, plan::sequences_of(batch));
    for (strategy::PipelinePlan& each : plan.pipelines)
      each.pipeline = strategy::on_devices({{each.pipeline}}, devices).pipelines.front();
    sum += static_cast<double>(graph::build(plan, table, planner.cost(), kRanks).makespan_ns);
  }
  return sum / 1e6;
}

TEST(UnequalDevices, EveryPipelineLiesOnOneKindAndDoesWhatItCan) {
  const plan::PlannerOptions options = mixed_options();
  const plan::Planner planner = make_planner(options, mixed_cost());
  for (const strategy::Strategy& candidate : planner.options().candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      for (const int rank : pipeline.ranks) EXPECT_EQ(rank < 8, pipeline.device.slowdown_percent == 100);
    }
  }
  plan::PlannerOptions alike = options;
  alike.candidates = planner.options().candidates;
  for (Device& device : alike.devices) device.slowdown_percent = 100;
  EXPECT_LT(step_ms(planner, options, options.devices),
            0.8 * step_ms(make_planner(alike, mixed_cost()), options, options.devices));
}

// Smaller devices get less work: plans are verified against each device's memory.
TEST(UnequalDevices, PlansFitTheSmallerDevices) {
  plan::PlannerOptions options = mixed_options();
  for (size_t rank = 8; rank < kRanks; ++rank) options.devices[rank].memory_bytes /= 2;
  const plan::Planner planner = make_planner(options, mixed_cost());
  const model::ParameterTable table =
      model::parameter_table(planner.cost().options().model, planner.cost().program());
  for (const auto& batch : options.sample_batches) {
    const graph::StepGraph graph =
        graph::build(planner.plan(0, plan::sequences_of(batch)), table, planner.cost(), kRanks);
    EXPECT_EQ(graph::memory_fault(graph, planner.cost()), "");
  }
}

TEST(UnequalDevices, RunsOfRanksAreToldTogether) {
  const std::vector<Device> devices = {
      {.slowdown_percent = 100}, {.slowdown_percent = 205}, {.slowdown_percent = 205}};
  EXPECT_EQ(to_text(runs_of(devices)), "100 % on rank 0, 205 % on ranks 1 to 2");
}

TEST(UnequalDevices, APipelineOnTwoKindsIsRefused) {
  plan::PlannerOptions options = mixed_options();
  options.candidates = {strategy::parse_strategy("1x<1,1,16,16>", kRanks)};
  try {
    make_planner(options, mixed_cost());
    FAIL() << "planned";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("lies on ranks 0 and 8"));
  }
}

// Measurements of equal ranks differ by noise, so the configured strategy must run all the same, as slowly as
// its slowest rank.
TEST(UnequalDevices, WhatWasMeasuredRefusesNoConfiguredStrategy) {
  plan::PlannerOptions options = mixed_options();
  options.candidates = {strategy::parse_strategy("1x<1,1,16,16>", kRanks),
                        strategy::parse_strategy("2x<1,1,8,8>", kRanks)};
  options.devices_from = plan::DeviceSource::kMeasured;
  options.devices[5].slowdown_percent = 115;
  const plan::Planner planner = make_planner(options, mixed_cost());
  EXPECT_EQ(planner.options().candidates[0].pipelines[0].device.slowdown_percent,
            std::ranges::max_element(options.devices, {}, &Device::slowdown_percent)->slowdown_percent);
  EXPECT_EQ(planner.options().candidates[1].pipelines[0].device.slowdown_percent, 115);
}

}  // namespace
}  // namespace sluice::session
