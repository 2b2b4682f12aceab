// Whole runs that learn from rewards, values, preferences and pairs: a run in two parts is the whole one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "learn/test_small_run.h"
#include "train/trainer.h"

namespace sluice::train {
namespace {

using base::Json;
using base::text;

class LearningRuns : public learn::SmallRuns {
 protected:
  LearningRuns() {
    write("corpus", {{"q1=", "7"}, {"q2=", "14"}, {"q3=", "21"}, {"q4=", "28"}, {"q5=", "35 a b"}});
    write("worse", {{"q1=", "a"}, {"q2=", "b"}, {"q3=", "c"}, {"q4=", "d"}, {"q5=", "e"}});
  }
  std::vector<Json> train(const config::RunConfig& config, const std::string& resume = "") {
    run::RunOptions options = learn::OpenRun::options_of(config);
    options.resume = resume;
    Trainer(options).run();
    std::vector<Json> lines;
    for (const std::string& line : base::split(base::read_file(config.log.dir / "metrics.jsonl"), '\n')) {
      if (!line.empty()) lines.push_back(Json::parse(line));
    }
    return lines;
  }
  // Trains four steps at once, and in two parts; the figures of both are the same.
  std::vector<Json> train_in_parts(std::vector<std::string> settings) {
    const std::vector<Json> whole = train(config(settings, "whole"));
    settings.emplace_back("train.steps=3");
    train(config(settings, "parts"));
    settings.back() = "train.steps=4";
    const std::vector<Json> parts = train(config(settings, "parts"), "auto");
    EXPECT_EQ(parts.size(), whole.size());
    for (size_t i = 0; i < std::min(parts.size(), whole.size()); ++i) {
      for (const char* key : {"step", "loss", "grad_norm", "reward", "entropy", "reward_margin", "value_loss",
                              "critic_grad_norm", "clip_fraction", "accuracy"})
        EXPECT_EQ(parts[i].value(key, Json()), whole[i].value(key, Json())) << key << " of step " << i;
    }
    return whole;
  }
  std::string list(const std::string& key, const std::string& name) const {
    return text(key, "=['", path(name), "']");
  }

  const std::vector<std::string> rollouts_ = {"rl.prompts_per_step=3", "rl.num_generations=4",
                                              "rl.max_completion_length=4", "rl.updates_per_rollout=2"};
  std::vector<std::string> with(std::vector<std::string> settings) const {
    settings.insert(settings.end(), rollouts_.begin(), rollouts_.end());
    return settings;
  }
};

// The second part begins in the middle of a rollout, whose episodes the checkpoint has.
TEST_F(LearningRuns, RewardsResumeInTheMiddleOfARollout) {
  const std::vector<Json> lines = train_in_parts(with({"rl.algorithm=reinforce", "rl.kl=0.1"}));
  EXPECT_TRUE(lines[0].contains("reward"));
  EXPECT_FALSE(lines[1].contains("reward")) << "a rollout's figures stand in its first step";
  EXPECT_TRUE(lines[2].contains("reward"));
  for (const size_t first : {0, 2}) EXPECT_LT(lines[first].at("rollout_logprob_diff"), 1e-9);
  EXPECT_GT(lines[1].at("rollout_logprob_diff"), 1e-9) << "an update lies between";
}

TEST_F(LearningRuns, ACriticIsSavedBesideThePolicy) {
  const std::vector<Json> lines = train_in_parts(with({"rl.algorithm=ppo"}));
  for (const Json& line : lines) {
    EXPECT_GT(line.at("value_loss"), 0);
    EXPECT_GT(line.at("critic_grad_norm"), 0);
    std::vector<std::string> acts;
    for (const Json& act : line.at("acts")) acts.push_back(act.at("name"));
    EXPECT_EQ(acts.back(), "update");
    EXPECT_EQ(acts[acts.size() - 2], "critic");
  }
}

TEST_F(LearningRuns, PreferencesGoOnWhereTheyStopped) {
  for (const char* algorithm : {"dpo", "kto"}) {
    SCOPED_TRACE(algorithm);
    const std::vector<Json> lines = train_in_parts(
        {text("rl.algorithm=", algorithm), "rl.prompts_per_step=2", list("rl.rejected", "worse")});
    EXPECT_TRUE(lines[0].contains("reward_margin"));
    std::filesystem::remove_all(directory_ / "whole");
    std::filesystem::remove_all(directory_ / "parts");
  }
}

// Later phases have other documents and lengths; parameters and step numbers go on.
TEST_F(LearningRuns, PhasesChangeTheDataAtTheirStep) {
  const std::string second = text("data.train=[['", path("worse"), "', 1.0]]");
  config::RunConfig phased = config({"train.steps=4", "data.tokens_per_step=8"});
  config::PhaseConfig phase{.step = 2, .data = phased.data};
  phase.data.train = {{path("worse"), 1.0}};
  phase.data.tokens_per_step = 16;
  phased.phases = {phase};
  const std::vector<Json> lines = train(phased);
  ASSERT_EQ(lines.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(lines[i].at("step"), i);
    EXPECT_LE(lines[i].at("tokens"), i < 2 ? 8 : 16);
  }
  EXPECT_GT(lines[2].at("tokens"), 8);
  // A run of the first phase alone has the same first steps.
  const std::vector<Json> first = train(config({"train.steps=2", "data.tokens_per_step=8"}, "first"));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(first[i].at("loss"), lines[i].at("loss"));
}

TEST_F(LearningRuns, SamplesAreLoggedBetweenSteps) {
  log_to_file();
  train(config({"train.sample_every=3", "train.sample_prompts=['q1=']"}));
  EXPECT_THAT(logged(), testing::HasSubstr("after step 2: sample  q1="));
  EXPECT_THAT(logged(), testing::HasSubstr("after step 3: sample  q1="));
}

}  // namespace
}  // namespace sluice::train
