// Evaluations between the steps of a run.
#include "train/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "learn/test_small_run.h"
#include "train/test_training_loop.h"

namespace sluice::train {
namespace {

using base::Json;
using base::text;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(TrainingLoop, SetsAreEvaluatedApartAndTheBestIsTheirMean) {
  write("other", 5);
  const std::string held = (directory_ / "held").string(), other = (directory_ / "other").string();
  const config::RunConfig both = config(
      "both", {text("data.validation={a=['", held, "'], b=['", other, "']}"), "optimizer.decay=constant"});
  train(both);
  const std::vector<Json> lines = evaluations(both);
  ASSERT_EQ(lines.size(), 4U);
  const config::RunConfig alone =
      config("alone", {text("data.validation=['", other, "']"), "optimizer.decay=constant"});
  train(alone);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(lines[2 * i].at("set"), "a");
    EXPECT_EQ(lines[2 * i].at("targets"), 3 * 19);
    EXPECT_EQ(lines[2 * i + 1].at("set"), "b");
    EXPECT_EQ(lines[2 * i + 1].at("validation_loss"), evaluations(alone)[i].at("validation_loss"));
    EXPECT_FALSE(evaluations(alone)[i].contains("set"));
  }
}

// A run that ended between its step and the evaluation makes it up, and once.
TEST_F(TrainingLoop, AMissingEvaluationIsMadeUpWhenTheRunResumes) {
  const config::RunConfig done = config("done");
  train(done);
  const std::vector<Json> before = evaluations(done);
  std::string kept;
  for (const Json& line : metrics(done)) {
    if (line.contains("loss") || line.at("step") != 5) kept += line.dump() + "\n";
  }
  base::write_file_atomically(done.log.dir / "metrics.jsonl", kept);
  train(done, "auto");
  EXPECT_EQ(evaluations(done), before);
  train(done, "auto");
  EXPECT_EQ(evaluations(done), before);
}

TEST_F(TrainingLoop, WithoutAnEvaluationEveryAFewStepsThereIsNone) {
  const config::RunConfig none = config("none", {"train.eval_every=0"});
  train(none);
  EXPECT_TRUE(evaluations(none).empty());
}

class LearntEvaluations : public learn::SmallRuns {
 protected:
  LearntEvaluations() {
    write("corpus", {{"q1=", "7"}, {"q2=", "14"}, {"q3=", "21"}, {"q4=", "28"}});
    write("worse", {{"q1=", "a"}, {"q2=", "b"}, {"q3=", "c"}, {"q4=", "d"}});
  }
  std::vector<Json> train(const config::RunConfig& config) {
    Trainer(learn::OpenRun::options_of(config)).run();
    std::vector<Json> lines;
    for (const std::string& line : base::split(base::read_file(config.log.dir / "metrics.jsonl"), '\n')) {
      if (!line.empty()) lines.push_back(Json::parse(line));
    }
    return lines;
  }
  std::string list(const std::string& key, const std::string& name) const {
    return text(key, "=['", path(name), "']");
  }
};

// One set's answers lie behind the context: nothing of them has a loss.
TEST_F(LearntEvaluations, SetsWithoutTargetsAreLeftOut) {
  write("held", {{"q9=", "63"}});
  write("late", {{std::string(40, 'f'), "7"}});
  log_to_file();
  const std::vector<Json> lines =
      train(config({text("data.validation={empty=['", path("late"), "'], held=['", path("held"), "']}"),
                    "train.eval_every=4"}));
  std::vector<Json> sets;
  for (const Json& line : lines) {
    if (line.contains("validation_loss")) sets.push_back(line.at("set"));
  }
  EXPECT_THAT(sets, ElementsAre("held"));
  EXPECT_THAT(logged(),
              HasSubstr("the validation set empty has no token that counts within data.context_length, 32"));
}

TEST_F(LearntEvaluations, ARunThatLearnsFromRewardsIsMeasuredByThem) {
  const std::vector<Json> lines = train(config(
      {"rl.algorithm=grpo", "rl.prompts_per_step=2", "rl.num_generations=2", "rl.max_completion_length=2",
       list("data.validation", "corpus"), "train.eval_every=2", "rl.val_max_samples=3"}));
  std::vector<Json> rewards;
  for (const Json& line : lines) {
    if (line.contains("validation_loss")) rewards.push_back(line.at("reward"));
  }
  ASSERT_EQ(rewards.size(), 2U);
  for (const Json& reward : rewards)
    EXPECT_THAT(reward.get<double>(), testing::AllOf(testing::Ge(0), testing::Le(1)));
}

TEST_F(LearntEvaluations, ARewardModelIsMeasuredByThePairsThatItOrders) {
  const std::vector<Json> lines = train(
      config({"head.kind=reward", "head.pairs_per_step=4", list("head.rejected", "worse"),
              "data.validation_fraction=0.5", "train.eval_every=4", "train.steps=12", "optimizer.lr=0.05"}));
  const Json& last = lines.back();
  ASSERT_TRUE(last.contains("validation_loss")) << last;
  EXPECT_THAT(last.at("accuracy").get<double>(), testing::AllOf(testing::Ge(0), testing::Le(1)));
  EXPECT_EQ(last.at("accuracy") == 1, last.at("margin") > 0 || last.at("accuracy") == 1) << last;
  EXPECT_LT(lines[lines.size() - 2].at("loss"), lines.front().at("loss"));
}

}  // namespace
}  // namespace sluice::train
