#include "report/closing_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepRecord step_of(int64_t step, double loss) {
  return {.step = step,
          .loss = loss,
          .tokens = 80,
          .strategy = step % 2 == 0 ? "<1,1,1>" : "<2,1,1>",
          .time_ns = 10'000'000,
          .predicted_ns = 11'000'000};
}

RunData run_of(std::vector<StepRecord> steps) {
  RunData run;
  run.systems.push_back({.name = "sluice", .steps = std::move(steps)});
  return run;
}

TEST(ClosingSummary, NamesWhoMadeOthersWait) {
  std::vector<StepRecord> steps;
  for (int64_t step = 0; step < 20; ++step) {
    steps.push_back(step_of(step, 4.0));
    if (step >= 15) steps.back().alarms = {{5, watch::Cause::kSlowdown, 12, 1.4}};
  }
  EXPECT_THAT(closing_summary(run_of(steps)),
              HasSubstr("\nheld up         by rank 5's slowdown for 5 steps\n"));
}

TEST(ClosingSummary, ShowsLossStrategiesAndPrediction) {
  std::vector<StepRecord> steps;
  for (int64_t step = 0; step < 20; ++step) steps.push_back(step_of(step, step < 10 ? 4.0 : 2.0));
  const std::string text = closing_summary(run_of(steps));
  EXPECT_THAT(text, HasSubstr("steps           1 to 20\n"));
  EXPECT_THAT(text, HasSubstr("4.0000 (first 10) -> 2.0000 (last 10), -50.0 %"));
  EXPECT_THAT(text, HasSubstr("  10 steps of tp2\n"));
  EXPECT_THAT(text, HasSubstr("median step     10.0 ms, 8,000 tokens/s\n"));
  EXPECT_THAT(text,
              HasSubstr("off by 10.0 % (median); steps take 0.909 of it and are 0.0 % off that (medians)\n"));
  for (const char* absent : {"memberships", "snapshots", "fallbacks", "plain operators", "validation"})
    EXPECT_THAT(text, Not(HasSubstr(absent)));
}

TEST(ClosingSummary, DrawsTheLossOfTheWholeRun) {
  std::vector<StepRecord> steps;
  for (int64_t step = 0; step < 8; ++step) steps.push_back(step_of(step, 7.0 - static_cast<double>(step)));
  EXPECT_THAT(closing_summary(run_of(steps)), HasSubstr("loss curve      █▇▆▅▄▃▂▁  0.0000 to 7.0000\n"));
  steps[3].loss = std::nan("");  // a step whose update was left out
  steps.push_back(step_of(8, 7.0));
  EXPECT_THAT(closing_summary(run_of(steps)), HasSubstr("loss curve      █▇▆▄▃▂▁█  0.0000 to 7.0000\n"));
  for (StepRecord& step : steps) step.loss = 3;
  EXPECT_THAT(closing_summary(run_of(steps)), HasSubstr("loss curve      ▁▁▁▁▁▁▁▁▁  3.0000 to 3.0000\n"));
  for (int64_t step = 9; step < 480; ++step) steps.push_back(step_of(step, 3.0));
  steps.back().loss = 13;  // the mean of the last ten is 4
  const std::string drawn = closing_summary(run_of(steps));
  EXPECT_THAT(drawn, HasSubstr("▁▁▁█  3.0000 to 4.0000\n"));
  steps.resize(7);
  EXPECT_THAT(closing_summary(run_of(steps)), Not(HasSubstr("loss curve"))) << "too few for a curve";
}

TEST(ClosingSummary, ShowsTheLastEvaluationOfEachSet) {
  RunData run = run_of({step_of(0, 4)});
  run.evaluations = {{0, "code", 3.0, 7}, {0, "", 2.5, 9}, {1, "code", 1.5, 1007}};
  EXPECT_THAT(closing_summary(run), HasSubstr("validation loss 2.5000 over 9 targets\n"
                                              "validation loss 1.5000 over 1,007 targets of code\n"));
}

TEST(ClosingSummary, TellsOfEpochsAndSnapshots) {
  std::vector<StepRecord> steps;
  for (const int64_t ranks : {4, 4, 3, 4}) {
    StepRecord& step = steps.emplace_back(step_of(static_cast<int64_t>(steps.size()), 4));
    step.ranks = ranks;
    step.restarts = std::max<int64_t>(0, step.step - 1);
    step.snapshot_bytes = step.step == 1 ? 1 << 20 : 0;
  }
  const std::string text = closing_summary(run_of(steps));
  EXPECT_THAT(text, HasSubstr("memberships     4 ranks, from step 3 on 3, from step 4 on 4"));
  EXPECT_THAT(text, HasSubstr("snapshots       1, 1.00 MiB to replicas each"));
}

TEST(ClosingSummary, CountsFallbacksAndAttentionThatNoFusedKernelTook) {
  StepRecord odd = step_of(1, 1);
  odd.fallback = "no room";
  odd.unfused_attention = 12;
  const std::string text = closing_summary(run_of({step_of(0, 1), odd}));
  EXPECT_THAT(text, HasSubstr("fallbacks       1 step without"));
  EXPECT_THAT(text, HasSubstr("12 calls by plain operators"));
}

TEST(ClosingSummary, RewardsStandInPlaceOfThePolicysLoss) {
  std::vector<StepRecord> steps{step_of(0, 0), step_of(1, 0)};
  steps[0].reward = 0.25;
  steps[1].reward = 0.75;
  const std::string text = closing_summary(run_of(steps));
  EXPECT_THAT(text, HasSubstr("reward          0.250 (first 1 of 2 rollouts) -> 0.750 (last 1)\n"));
  EXPECT_THAT(text, Not(HasSubstr("\nloss")));
}

TEST(ClosingSummary, ALossOfNothingHasNoChangeInPercent) {
  const std::string text = closing_summary(run_of({step_of(0, 0), step_of(1, 0)}));
  EXPECT_THAT(text, HasSubstr("loss            0.0000 (first) -> 0.0000 (last)\n"));
}

TEST(ClosingSummary, FewStepsAreNotComparedWithThemselves) {
  const auto text_of = [](int64_t count) {
    std::vector<StepRecord> steps;
    for (int64_t step = 0; step < count; ++step)
      steps.push_back(step_of(step, 8.0 / static_cast<double>(step + 1)));
    return closing_summary(run_of(steps));
  };
  EXPECT_THAT(text_of(1), HasSubstr("8.0000 (of the one step)\n"));
  EXPECT_THAT(text_of(2), HasSubstr("8.0000 (first) -> 4.0000 (last), -50.0 %"));
  EXPECT_THAT(text_of(6), HasSubstr("(first 3) -> 1.6444 (last 3), -66.4 %"));
}

}  // namespace
}  // namespace sluice::report
