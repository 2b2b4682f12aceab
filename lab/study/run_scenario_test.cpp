#include "study/run_scenario.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "config/config_file.h"
#include "corpus/indexed.h"
#include "corpus/temporary_directory.h"
#include "session/data.h"
#include "session/other_models.h"
#include "session/run_planning.h"
#include "session/sampling.h"
#include "study/methods.h"
#include "study/sluice_system.h"

namespace sluice::study {
namespace {

constexpr int kRanks = 4;

class RunScenario : public testing::Test {
 protected:
  RunScenario() {
    corpus::IndexedWriter writer(directory_ / "corpus", {});
    for (int document = 0; document < 200; ++document) {
      writer.add(std::vector<int32_t>(static_cast<size_t>(document % 50 == 0 ? 900 : 20 + document), 1));
    }
    writer.commit();
  }

  config::RunConfig config(const std::vector<std::string>& settings) {
    std::vector<std::string> all = {
        base::text("data.train=[['", (directory_ / "corpus").string(), "', 1.0]]")};
    all.insert(all.end(), settings.begin(), settings.end());
    return config::parse_config(R"(
      [model]
      layers = 4
      hidden = 64
      heads = 4
      kv_heads = 4
      ffn_hidden = 128
      vocab = 64
      [data]
      context_length = 512
      tokens_per_step = 2048
      validation_fraction = 0.2
      [parallel]
      calibration = "analytic"
      )",
                                "the test", all);
  }

  corpus::TemporaryDirectory directory_;
};

// All that decides candidates and plans is the training run's.
TEST_F(RunScenario, SluicePlansWithWhatTrainingPlansWith) {
  offer_methods();
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"data.overflow=drop", "parallel.max_cp=2"},
      {"data.overflow=split", "parallel.method=paper"},
      {"parallel.strategies=['4x<1,1,1>', '<2,1,2>']", "parallel.select=1", "memory.recompute=full"},
      {"parallel.strategies=['4x<1,1,1>', '<2,1,2>']", "parallel.select=cycle", "memory.offload=0.5"}};
  for (const std::vector<std::string>& settings : cases) {
    SCOPED_TRACE(base::join(settings, " "));
    const config::RunConfig run = config(settings);
    const Scenario scenario = scenario_of_run(run, {.ranks = kRanks, .steps = 2});
    const session::Data data = session::open_data(run);
    const cost::CostModel& cost = scenario.inputs.cost;
    const plan::Planner training = session::make_planner(session::planner_options(run, data, cost, kRanks),
                                                         session::cost_of_data(run, data, cost));
    const auto simulated = make_sluice(scenario.inputs);
    for (const corpus::Batch& batch : scenario.batches) {
      const auto sequences = session::sequences_of(batch.samples);
      const strategy::StepPlan expected = training.plan(batch.step, sequences);
      const SystemStep step = simulated->step(batch.step, sequences);
      EXPECT_EQ(strategy::hash(step.plan), strategy::hash(expected));
      EXPECT_EQ(step.plan.estimated_ns, expected.estimated_ns);
      EXPECT_EQ(step.plan.candidates.size(), expected.candidates.size());
      EXPECT_EQ(step.fallback, "");
    }
  }
}

TEST_F(RunScenario, ClusterIsTheConfiguredOne) {
  const config::RunConfig run = config({"cluster.preset=h100x8", "cluster.nodes=2"});
  const session::RunMachine machine = session::machine_of(run, {});
  EXPECT_EQ(machine.world_size, 16);
  EXPECT_EQ(machine.cluster.name, "h100x8");
  EXPECT_EQ(machine.calibration.options.topology.node_ranks(), 8);
  EXPECT_EQ(scenario_of_run(run, {.steps = 1}).inputs.world_size, 16);
}

TEST_F(RunScenario, ATeacherIsTakenOffTheDeviceOnce) {
  const std::filesystem::path teacher = directory_ / "teacher";
  std::filesystem::create_directories(teacher);
  std::ofstream(teacher / "config.json")
      << R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4, )"
      << R"("num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 64, "rms_norm_eps": 1e-5})";
  const auto room = [&](const std::vector<std::string>& settings) {
    return scenario_of_run(config(settings), {.steps = 1}).inputs.cost.options().memory;
  };
  const cost::MemoryModel alone = room({"cluster.preset=h100x8"});
  const std::vector<std::string> taught{"cluster.preset=h100x8", base::text("teacher.hf=", teacher.string())};
  const int64_t beside = session::bytes_beside(config(taught), alone, 8);
  ASSERT_GT(beside, 0);
  EXPECT_EQ(alone.device_bytes - room(taught).device_bytes, beside);
}

}  // namespace
}  // namespace sluice::study
