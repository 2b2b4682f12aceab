#include "study/other_acts.h"

#include <gtest/gtest.h>

#include <algorithm>
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
    // Conversations, whose first ten tokens are the prompt.
    corpus::IndexedWriter writer(directory_ / "corpus", {.mask = corpus::MaskFile::kWrite});
    for (size_t tokens = 20; tokens < 80; ++tokens) {
      std::vector<uint8_t> mask(tokens, 1);
      std::fill_n(mask.begin(), 10, uint8_t{0});
      writer.add(std::vector<int32_t>(tokens, 1), mask);
    }
    writer.commit();
    std::ofstream(directory_ / "config.json")
        << R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, )"
        << R"("num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64, "rms_norm_eps": 1e-5, )"
        << R"("tie_word_embeddings": false, "max_position_embeddings": 128})";
  }

  Scenario scenario(const std::string& strategies, const std::vector<std::string>& more) const {
    std::vector<std::string> settings{"data.train=[['" + (directory_ / "corpus").string() + "', 1.0]]",
                                      "parallel.strategies=" + strategies};
    settings.insert(settings.end(), more.begin(), more.end());
    return scenario_of_run(config::parse_config(R"(
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
                                                "the test", settings),
                           {.ranks = kTaughtRanks, .steps = 3});
  }

  std::string folder() const { return (directory_ / ".").string(); }

  corpus::TemporaryDirectory directory_;
};

Simulation simulated_with(const Scenario& scenario, OtherActs* others) {
  return simulate(*make_sluice(scenario.inputs), scenario.batches, scenario.table,
                  {.world_size = kTaughtRanks, .others = others});
}

TEST_F(OtherActsOfARun, StandInFrontOfEachUpdate) {
  for (const char* strategies : {"['2x<1,1,1>']", "['<2,1,1>']", "['<1,2,1>']", "['<1,1,2,2>']"}) {
    SCOPED_TRACE(strategies);
    const Scenario taught = scenario(strategies, {"teacher.hf=" + folder()});
    ASSERT_NE(taught.others, nullptr);
    const Simulation whole = simulated_with(taught, taught.others.get()),
                     update = simulated_with(taught, nullptr);
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

TEST_F(OtherActsOfARun, SeveralTeachersStandOneBehindTheOther) {
  const Scenario taught = scenario("['<1,2,1>']", {"teacher.hf=['" + folder() + "', '" + folder() + "']"});
  for (const report::StepRecord& step : simulated_with(taught, taught.others.get()).run.steps) {
    ASSERT_EQ(step.acts.size(), 3);
    EXPECT_EQ(step.acts[0].name, "teacher 1");
    EXPECT_EQ(step.acts[1].name, "teacher 2");
    EXPECT_EQ(step.acts[0].time_ns, step.acts[1].time_ns);
    EXPECT_GT(step.acts[1].peak_bytes, step.acts[0].peak_bytes);  // by the first one's rows
    EXPECT_EQ(step.time_ns, 2 * step.acts[0].time_ns + step.acts[2].time_ns);
    EXPECT_EQ(step.shares.total_ns(), kTaughtRanks * step.time_ns);
  }
}

TEST_F(OtherActsOfARun, AReferenceIsEvaluatedBeforeTheUpdate) {
  const Scenario near = scenario("['<2,1,1>']", {"rl.algorithm=grpo", "rl.kl=0.1"});
  ASSERT_NE(near.others, nullptr);
  const Simulation whole = simulated_with(near, near.others.get()), update = simulated_with(near, nullptr);
  for (size_t i = 0; i < whole.run.steps.size(); ++i) {
    const report::StepRecord& step = whole.run.steps[i];
    ASSERT_EQ(step.acts.size(), 2);
    EXPECT_EQ(step.acts[0].name, "reference");
    EXPECT_EQ(step.acts[1].time_ns, update.run.steps[i].time_ns);
    EXPECT_LT(step.acts[0].time_ns, step.acts[1].time_ns);
  }
}

}  // namespace
}  // namespace sluice::study
