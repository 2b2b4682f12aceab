#include "study/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "report/run_summary.h"
#include "session/sampling.h"
#include "study/comparison.h"
#include "study/sluice_system.h"
#include "study/system_kinds.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

// 8 GPUs of one node and a corpus in which few documents are long.
Scenario small_scenario(int64_t steps = 3, int gpus = 8) {
  session::PlanningOptions options;
  options.gpus = gpus;
  options.model = "llama-7b";
  options.cluster = "a800x8";
  options.context_length = 16384;
  options.tokens_per_step = 60'000;
  options.max_cp = 1;
  std::vector<int32_t> lengths;
  for (int i = 0; i < 500; ++i) lengths.push_back(200 + 37 * (i % 50) + (i % 100 == 0 ? 14000 : 0));
  return scenario_of(session::resolve_planning(options, lengths), steps);
}

TEST(Simulation, EveryStepIsRecorded) {
  const Scenario scenario = small_scenario();
  const std::vector<SystemResult> results = compare(scenario, {.timeline_steps = {1}});
  ASSERT_EQ(results.size(), 1u);
  ASSERT_EQ(results[0].run.steps.size(), 3u);
  const auto system = make_sluice(scenario.inputs);
  for (const report::StepRecord& step : results[0].run.steps) {
    const auto sequences = session::sequences_of(scenario.batches[static_cast<size_t>(step.step)].samples);
    const SystemStep planned = system->step(step.step, sequences);
    const graph::StepGraph graph = expect_runs_all(planned, sequences, system->cost(), 8);
    EXPECT_EQ(step.time_ns, graph.makespan_ns);
    EXPECT_EQ(step.tokens, planned.plan.tokens());
    EXPECT_EQ(step.strategy, strategy::to_text(planned.plan.strategy()));
    EXPECT_EQ(step.fallback, "");
    EXPECT_GE(step.time_ns, step.lower_bound_ns);
    EXPECT_EQ(step.shares.total_ns(), step.time_ns * 8);
    EXPECT_GT(step.peak_bytes, 0);
    EXPECT_LE(step.peak_bytes, scenario.inputs.cost.options().memory.device_bytes);
  }
  ASSERT_EQ(results[0].timelines.size(), 1u);
  EXPECT_EQ(results[0].timelines[0].step, 1);
}

// On two nodes DeepSpeed gathers between them in each pass, which the second overlap makes dear.
TEST(Simulation, GathersBetweenNodesAreTimedUnderBothOverlaps) {
  const Scenario scenario = small_scenario(2, 16);
  const std::vector<SystemResult> results =
      compare(scenario, {.systems = {"sluice", "megatron", "deepspeed"}});
  EXPECT_TRUE(results[1].measured.steps.empty()) << "it shares nothing";
  const SystemResult& deepspeed = results[2];
  if (deepspeed.run.configuration.find("ZeRO-1") == std::string::npos) {
    ASSERT_EQ(deepspeed.measured.steps.size(), 2u);
    EXPECT_GT(deepspeed.measured.steps[0].time_ns, deepspeed.run.steps[0].time_ns);
  }
  const std::string table = comparison_table(scenario, results);
  EXPECT_NE(table.find("fastest other system"), std::string::npos) << table;
}

// A system's own cost model does not change the devices' memory, which is the machine's.
TEST(Simulation, NoSystemTakesMoreThanTheDeviceHas) {
  const Scenario scenario = small_scenario(2, 16);
  const std::vector<SystemResult> results = compare(scenario, {.systems = parse_systems("all")});
  for (const SystemResult& result : results) {
    EXPECT_TRUE(!result.run.steps.empty() || !result.run.infeasible.empty()) << result.run.name;
    for (const report::StepRecord& step : result.run.steps)
      EXPECT_LE(step.peak_bytes, scenario.inputs.cost.options().memory.device_bytes) << result.run.name;
  }
}

TEST(Simulation, RepeatsByteForByte) {
  const Scenario scenario = small_scenario();
  const auto run = [&] {
    const std::vector<SystemResult> results = compare(scenario, {.timeline_steps = {0}});
    return metrics_lines(results) + simulation_json(scenario, results).dump() +
           graph::chrome_trace(results[0].timelines[0].records);
  };
  EXPECT_EQ(run(), run());
}

TEST(Simulation, StatisticsAreOverTheSteps) {
  report::SystemRun run;
  for (const int64_t ns : {int64_t{1'000'000'000}, int64_t{3'000'000'000}})
    run.steps.push_back({.tokens = 100, .time_ns = ns});
  const report::SystemSummary statistics = report::summary_of(run);
  EXPECT_EQ(statistics.mean_step_ns, 2'000'000'000);
  EXPECT_EQ(statistics.std_step_ns, 1'000'000'000);
  EXPECT_EQ(statistics.tokens_per_s, 50);
}

TEST(Scenario, ModelThatDoesNotFitIsRefused) {
  try {
    small_scenario(3, 1);
    FAIL();
  } catch (const base::InfeasibleError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("1 GPUs cannot hold the model"));
  }
}

TEST(Comparison, SystemsAreNamedOnceWithSluiceFirst) {
  EXPECT_THAT(parse_systems(""), ::testing::ElementsAre("sluice"));
  EXPECT_THAT(parse_systems("sluice"), ::testing::ElementsAre("sluice"));
  EXPECT_EQ(parse_systems("all").size(), system_kinds().size());
}

TEST(Comparison, UnknownSystemIsRefused) {
  EXPECT_THROW(parse_systems("megatrom"), base::InputError);
  EXPECT_THROW(parse_systems("sluice,"), base::InputError);
}

}  // namespace
}  // namespace sluice::study
