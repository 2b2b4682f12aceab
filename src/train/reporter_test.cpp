// The things that a run tells people: files of its directory, the log, and metrics for monitoring.
#include "train/reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/test_graphs.h"
#include "learn/test_small_run.h"
#include "report/prometheus.h"
#include "serve/test_client.h"
#include "train/test_training_loop.h"

namespace sluice::train {
namespace {

using base::text;
using testing::HasSubstr;
using testing::Not;

report::StepRecord record_of(int64_t step, double loss = 2.5) {
  return {.step = step,
          .loss = loss,
          .tokens = 40,
          .sequences = 2,
          .strategy = "1x<1,1,1>",
          .time_ns = 2'000'000,
          .predicted_ns = 1'000'000,
          .grad_norm = 0.5,
          .tokens_per_s = 20'000,
          .ranks = 1};
}

class Reports : public TrainingLoop {
 protected:
  // The lines of metrics.jsonl.
  std::vector<std::string> lines() const {
    std::vector<std::string> all = base::split(base::read_file(directory_ / "run" / "metrics.jsonl"), '\n');
    all.pop_back();
    return all;
  }
};

TEST_F(Reports, TheDirectoryHoldsWhatIsNeededToRepeatTheRun) {
  learn::OpenRun run(config("run"));
  Reporter reporter(*run);
  const std::filesystem::path written = run->config().log.dir / "config.toml";
  EXPECT_EQ(config::to_toml(config::read_config(written)), config::to_toml(run->config()));
  EXPECT_EQ(base::read_json(run->config().log.dir / "calibration.json"), run->planning().calibration());
}

TEST_F(Reports, EachStepIsALineOfTheLogAndOfTheMetrics) {
  learn::OpenRun run(config("run", {"train.steps=9"}));
  Reporter reporter(*run);
  log_to_file();
  reporter.write(record_of(0));
  EXPECT_THAT(logged(), HasSubstr("step 1/9  loss 2.5000  grad_norm 0.500"));
  EXPECT_THAT(logged(), HasSubstr("2.0 ms (predicted 1.0)  20000 tokens/s  tp1"));
  report::StepRecord rewarded = record_of(1);
  rewarded.reward = 0.25;
  rewarded.response_mean = 3.5;
  rewarded.rollout_strategy = "1x<1,1,1>";
  rewarded.completions = {
      {.step = 1, .prompt = "q1=", .completion = "7", .reward = 1, .tokens = 2, .finish_reason = "stop"}};
  reporter.write(rewarded);
  EXPECT_THAT(logged(), HasSubstr("reward 0.250  response 3.5 tokens"));
  EXPECT_THAT(logged(), HasSubstr("q1="));
  reporter.write(std::vector<report::EvaluationMetrics>{
      {.step = 1, .set = "wiki", .validation_loss = 3, .targets = 57, .accuracy = 0.5}});
  EXPECT_THAT(logged(), HasSubstr("step 2 validation loss of wiki 3 over 57 targets, accuracy 0.5"));
  EXPECT_EQ(lines().size(), 3U);
}

// Files are deleted by mistake, or by tools that clean up.
TEST_F(Reports, AFileThatIsDeletedIsWrittenAnewAndTheUserIsTold) {
  learn::OpenRun run(config("run"));
  Reporter reporter(*run);
  reporter.write(record_of(0));
  std::filesystem::remove(directory_ / "run" / "metrics.jsonl");
  std::filesystem::remove(directory_ / "run" / "config.toml");
  log_to_file();
  reporter.write(record_of(1));
  EXPECT_EQ(lines().size(), 2U);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "run" / "config.toml"));
  EXPECT_THAT(logged(), HasSubstr("metrics.jsonl was deleted while the run went on"));
}

TEST_F(Reports, MetricsAreServedAtTheirAddressAndWrittenToTheirFile) {
  log_to_file();
  learn::OpenRun run(config("run", {"log.metrics='127.0.0.1:0'",
                                    text("log.prometheus='", (directory_ / "page.prom").string(), "'")}));
  Reporter reporter(*run);
  const std::string words = "metrics at port ";
  const size_t at = logged().find(words);
  ASSERT_NE(at, std::string::npos);
  const int port = std::stoi(logged().substr(at + words.size()));
  reporter.write(record_of(0, 2));
  reporter.write(record_of(1, 1));
  const std::string page =
      serve::exchange(port, "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(page, HasSubstr("\nsluice_loss 1\n"));
  EXPECT_THAT(page, HasSubstr("\nsluice_tokens_total 80\n"));
  EXPECT_THAT(page, testing::EndsWith(base::read_file(directory_ / "page.prom")));
}

TEST_F(Reports, AMonitoringFileThatCannotBeWrittenIsToldOfOnceAndTheRunGoesOn) {
  learn::OpenRun run(config("run", {"log.prometheus='/proc/no/such/page'"}));
  Reporter reporter(*run);
  log_to_file();
  reporter.write(record_of(0));
  reporter.write(record_of(1));
  const size_t first = logged().find("log.prometheus is not written");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(logged().find("log.prometheus is not written", first + 1), std::string::npos);
  EXPECT_EQ(lines().size(), 2U);
}

// A rank that makes the others wait is a warning, one that costs nothing is only noted.
TEST_F(Reports, AlarmsNameTheRankWhatItCostsAndWhereToLook) {
  learn::OpenRun run(config("run"));
  const Reporter reporter(*run);
  const model::Outline outline = model::outline_of_12_heads(4);
  const graph::StepGraph graph =
      graph::build(graph::testing::plan_from_text("2x<1,1,1>", {"400", "40"}, 2),
                   model::parameter_table(outline), graph::testing::small_cost(outline), 2);
  const auto told = [&](int rank, bool begins) {
    log_to_file();
    reporter.write({{{.rank = rank, .cause = watch::Cause::kSlowdown, .since = 3, .score = 1.5}, begins}},
                   record_of(5), graph, {rank == 0 ? 1.5 : 1, rank == 1 ? 1.5 : 1});
    return logged();
  };
  const std::string slow = told(0, true);
  EXPECT_THAT(slow, HasSubstr("rank 0 "));
  EXPECT_THAT(slow, HasSubstr("since step 4; steps like this one take "));
  EXPECT_THAT(slow, HasSubstr("look at its machine's other load, clocks and temperature"));
  EXPECT_THAT(slow, HasSubstr("warning"));
  std::filesystem::remove(directory_ / "log");
  EXPECT_THAT(told(1, true), Not(HasSubstr("warning"))) << "it waits for the other all the same";
  std::filesystem::remove(directory_ / "log");
  EXPECT_THAT(told(0, false), HasSubstr("is no longer slow"));
}

TEST_F(Reports, TheEndNamesTheNextCommandsAndTheBestModel) {
  const config::RunConfig finished =
      config("run", {"train.steps=4", "train.eval_every=1", "checkpoint.keep_best=true", "checkpoint.keep=1",
                     "optimizer.lr=0", "optimizer.min_lr=0", "optimizer.weight_decay=0"});
  log_to_file();
  train(finished);
  EXPECT_THAT(logged(), HasSubstr("the report is "));
  EXPECT_THAT(logged(), HasSubstr("checkpoints/step-4"));
  EXPECT_THAT(logged(), HasSubstr("checkpoints/step-1")) << "the best evaluation's";
  EXPECT_THAT(base::read_file(finished.log.dir / "report.html"), HasSubstr("<svg"));
  std::filesystem::remove(directory_ / "log");
  log_to_file();
  train(finished, "auto");
  EXPECT_THAT(logged(), HasSubstr("all 4 steps are done already: raise train.steps to go on"));
}

}  // namespace
}  // namespace sluice::train
