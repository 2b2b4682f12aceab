#include "study/other_acts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "config/config_file.h"
#include "corpus/indexed.h"
#include "corpus/temporary_directory.h"
#include "study/run_scenario.h"
#include "study/simulation.h"
#include "study/sluice_system.h"

namespace sluice::study {
namespace {

constexpr int kTaughtRanks = 2;

class OtherActsOfARun : public testing::Test {
 protected:
  OtherActsOfARun() {
    corpus::IndexedWriter writer(directory_ / "corpus", {});
    for (int document = 0; document < 60; ++document)
      writer.add(std::vector<int32_t>(static_cast<size_t>(20 + document), 1));
    writer.commit();
    std::ofstream(directory_ / "config.json")
        << R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, )"
        << R"("num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64, "rms_norm_eps": 1e-5, )"
        << R"("tie_word_embeddings": false, "max_position_embeddings": 128})";
  }

  Scenario scenario(const std::string& strategies) const {
    return scenario_of_run(
        config::parse_config(R"(
      [model]
      layers = 4
      hidden = 64
      heads = 4
      kv_heads = 4
      ffn_hidden = 128
      vocab = 64
      [data]
      context_length = 128
      tokens_per_step = 512
      [parallel]
      calibration = "analytic"
      )",
                             "the test",
                             {"data.train=[['" + (directory_ / "corpus").string() + "', 1.0]]",
                              "parallel.strategies=" + strategies, "teacher.hf=" + (directory_ / ".").string()}),
        {.ranks = kTaughtRanks, .steps = 3});
  }

  corpus::TemporaryDirectory directory_;
};

Simulation simulated_with(const Scenario& scenario, OtherActs* others) {
  return simulate(*make_sluice(scenario.inputs), scenario.batches, scenario.table,
                  {.world_size = kTaughtRanks, .others = others});
}

TEST_F(OtherActsOfARun, StandInFrontOfEachUpdate) {
  for (const char* strategies : {"['2x<1,1,1>']", "['<2,1,1>']", "['<1,2,1>']", "['<1,1,2,2>']"}) {
    SCOPED_TRACE(strategies);
    const Scenario taught = scenario(strategies);
    ASSERT_NE(taught.others, nullptr);
    const Simulation whole = simulated_with(taught, taught.others.get()), update = simulated_with(taught, nullptr);
    ASSERT_EQ(whole.run.steps.size(), 3);
    for (size_t i = 0; i < whole.run.steps.size(); ++i) {
      const report::StepRecord& step = whole.run.steps[i];
      ASSERT_EQ(step.acts.size(), 2);
      EXPECT_EQ(step.acts[0].name, "teacher");
      EXPECT_EQ(step.acts[1].name, "update");
      EXPECT_GT(step.acts[0].time_ns, 0);
      EXPECT_EQ(step.acts[1].time_ns, update.run.steps[i].time_ns);
      EXPECT_EQ(step.time_ns, step.acts[0].time_ns + step.acts[1].time_ns);
      EXPECT_EQ(step.shares.total_ns(), kTaughtRanks * step.time_ns);
      EXPECT_GE(step.peak_bytes, step.acts[0].peak_bytes);
      EXPECT_TRUE(update.run.steps[i].acts.empty());
    }
  }
}

}  // namespace
}  // namespace sluice::study
