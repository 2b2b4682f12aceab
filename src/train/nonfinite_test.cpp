// Steps whose loss or gradient is not finite: an update of 1e300 makes all later ones so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/test_training_loop.h"

namespace sluice::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

class NonfiniteSteps : public TrainingLoop {
 protected:
  config::RunConfig diverging(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> settings = {
        "optimizer.lr=900",   "optimizer.min_lr=900",        "optimizer.warmup_steps=0",
        "optimizer.clip=0",   "optimizer.weight_decay=1000", "train.steps=200",
        "checkpoint.every=0", "train.eval_every=0"};
    settings.insert(settings.end(), more.begin(), more.end());
    return config(run, settings);
  }
};

TEST_F(NonfiniteSteps, EndTheRunWithTheLastGoodParametersSaved) {
  const config::RunConfig stops = diverging("stops", {});
  EXPECT_THAT([&] { train(stops); },
              ThrowsMessage<base::RunError>(AllOf(HasSubstr("has loss "), HasSubstr("are saved as step-"),
                                                  HasSubstr("resume with a lower optimizer.lr"),
                                                  HasSubstr("train.on_nonfinite = \"skip\""))));
  const auto steps = static_cast<int64_t>(metrics(stops).size());
  EXPECT_LT(steps, 200);
  // The last line is the bad step's, whose update nobody made.
  EXPECT_TRUE(has_checkpoint(stops, steps - 1));
  EXPECT_EQ(metrics(stops).back().at("skipped_updates"), 1);
}

TEST_F(NonfiniteSteps, MayBeSkippedAFewTimesInARow) {
  const config::RunConfig skips = diverging("skips", {"train.on_nonfinite=skip"});
  log_to_file();
  EXPECT_THAT([&] { train(skips); }, ThrowsMessage<base::RunError>(AllOf(HasSubstr("as have the 9 before it"),
                                                                         Not(HasSubstr("on_nonfinite")))));
  EXPECT_THAT(logged(), HasSubstr("its update is left out (train.on_nonfinite); 1 so far"));
  EXPECT_THAT(logged(), HasSubstr("; 9 so far"));
  EXPECT_EQ(metrics(skips).back().at("skipped_updates"), 10);
}

TEST_F(NonfiniteSteps, ALossFarAboveGuessingIsWarnedOfOnce) {
  const config::RunConfig lost = config(
      "lost", {"optimizer.lr=30", "optimizer.min_lr=30", "optimizer.warmup_steps=0", "train.eval_every=0"});
  log_to_file();
  train(lost);
  const std::string words = "optimizer.lr = 30 is probably too high";
  const size_t first = logged().find(words);
  ASSERT_NE(first, std::string::npos) << logged();
  EXPECT_EQ(logged().find(words, first + 1), std::string::npos);
  EXPECT_THAT(logged(), HasSubstr("guessing among 64 tokens would have 4.15888"));
}

}  // namespace
}  // namespace sluice::train
