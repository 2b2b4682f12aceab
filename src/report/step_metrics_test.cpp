#include "report/step_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "report/tensorboard.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path scratch(const std::string& name) {
  const fs::path directory = fs::temp_directory_path() / base::text("sluice-report-", name, "-", ::getpid());
  fs::remove_all(directory);
  fs::create_directories(directory);
  return directory;
}

StepMetrics metrics_of(int64_t step, double loss) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  metrics.time_ms = 10;
  metrics.predicted_ms = 11;
  metrics.strategy = step % 2 == 0 ? "<1,1,1>" : "<2,1,1>";
  return metrics;
}

TEST(Metrics, ResumedRunDropsTheStepsItRepeats) {
  const fs::path directory = scratch("resume");
  {
    MetricsWriter writer({directory, false, 0});
    for (int64_t step = 0; step < 5; ++step) writer.write(metrics_of(step, 1));
  }
  MetricsWriter writer({directory, false, 3});
  writer.write(metrics_of(3, 2));
  std::vector<int64_t> steps;
  for (const std::string& line : base::split(base::read_file(directory / "metrics.jsonl"), '\n')) {
    if (!line.empty()) steps.push_back(base::Json::parse(line)["step"]);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2, 3}));
  fs::remove_all(directory);
}

TEST(Metrics, TheSummaryOfAResumedRunCoversItsEarlierPart) {
  const fs::path directory = scratch("whole");
  const auto of_epoch = [](int64_t step, int64_t epoch, int64_t ranks) {
    StepMetrics metrics = metrics_of(step, 4);
    metrics.epoch = epoch;
    metrics.ranks = ranks;
    metrics.snapshot_bytes = step == 1 ? 1 << 20 : 0;
    return metrics;
  };
  {
    MetricsWriter writer({directory, false, 0});
    for (int64_t step = 0; step < 3; ++step) writer.write(of_epoch(step, 0, 4));
  }
  const MetricsWriter writer({directory, false, 2});
  RunSummary summary = writer.earlier();
  summary.add(of_epoch(2, 1, 3));
  summary.add(of_epoch(3, 2, 4));
  EXPECT_THAT(summary.text(), HasSubstr("steps           0 to 3"));
  EXPECT_THAT(summary.text(), HasSubstr("epochs          4 ranks, from step 2 on 3, from step 3 on 4"));
  EXPECT_THAT(summary.text(), HasSubstr("snapshots       1, 1.00 MiB to buddies each"));
  EXPECT_THAT(summary.text(), HasSubstr("median step     10.0 ms"));
  fs::remove_all(directory);
}

TEST(Metrics, ResumedRunKnowsWhatItsEarlierPartLeft) {
  const fs::path directory = scratch("earlier");
  {
    MetricsWriter writer({directory, false, 0});
    for (int64_t step = 0; step < 4; ++step) writer.write(metrics_of(step, 1));
    writer.write(EvaluationMetrics{.step = 1, .validation_loss = 1, .targets = 1});
    EXPECT_EQ(writer.missing_steps(), 0);
  }
  {
    const MetricsWriter writer({directory, false, 4});
    EXPECT_EQ(writer.missing_steps(), 0);
    EXPECT_TRUE(writer.has_evaluation(1));
    EXPECT_FALSE(writer.has_evaluation(3));
  }
  std::string lines = base::read_file(directory / "metrics.jsonl");
  lines[lines.find("\n{") + 1] = '\xff';                      // the second step's line is no JSON any more
  lines.replace(lines.find("\"step\":0"), 8, "\"step\":[]");  // the first one's number is none
  base::write_file_atomically(directory / "metrics.jsonl", lines);
  EXPECT_EQ(MetricsWriter({directory, false, 4}).missing_steps(), 2);
  fs::remove(directory / "metrics.jsonl");
  EXPECT_EQ(MetricsWriter({directory, false, 4}).missing_steps(), 4);
  fs::remove_all(directory);
}

TEST(Metrics, SummaryShowsLossStrategiesAndPrediction) {
  RunSummary summary;
  for (int64_t step = 0; step < 20; ++step) summary.add(metrics_of(step, step < 10 ? 4.0 : 2.0));
  const std::string text = summary.text();
  EXPECT_NE(text.find("4.0000 (first 10) -> 2.0000 (last 10), -50.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("10 steps of <2,1,1>"), std::string::npos) << text;
  EXPECT_NE(text.find("off by 10.0 %"), std::string::npos) << text;
}

TEST(Metrics, FallbackIsNullOrItsReason) {
  StepMetrics metrics = metrics_of(0, 1);
  EXPECT_TRUE(to_json(metrics).at("fallback").is_null());
  metrics.fallback = "no room";
  EXPECT_EQ(to_json(metrics).at("fallback"), "no room");
  RunSummary summary;
  summary.add(metrics_of(1, 1));
  EXPECT_EQ(summary.text().find("fallbacks"), std::string::npos);
  summary.add(metrics);
  EXPECT_NE(summary.text().find("fallbacks       1 step without"), std::string::npos) << summary.text();
}

TEST(Metrics, SummaryCountsAttentionThatNoFusedKernelTook) {
  StepMetrics metrics = metrics_of(0, 1);
  RunSummary summary;
  summary.add(metrics);
  EXPECT_EQ(summary.text().find("plain operators"), std::string::npos);
  metrics.unfused_attention = 12;
  EXPECT_EQ(to_json(metrics).at("unfused_attention"), 12);
  summary.add(metrics);
  EXPECT_NE(summary.text().find("12 calls by plain operators"), std::string::npos) << summary.text();
}

TEST(Metrics, SummaryOfFewStepsComparesNoneWithItself) {
  const auto text_of = [](int64_t steps) {
    RunSummary summary;
    for (int64_t step = 0; step < steps; ++step)
      summary.add(metrics_of(step, 8.0 / static_cast<double>(step + 1)));
    return summary.text();
  };
  EXPECT_NE(text_of(1).find("8.0000 (of the one step)\n"), std::string::npos) << text_of(1);
  EXPECT_NE(text_of(2).find("8.0000 (first) -> 4.0000 (last), -50.0 %"), std::string::npos) << text_of(2);
  EXPECT_NE(text_of(6).find("(first 3) -> 1.6444 (last 3), -66.4 %"), std::string::npos) << text_of(6);
}

TEST(TensorBoard, ChecksumOfTheStandardVector) { EXPECT_EQ(crc32c("123456789"), 0xE3069283u); }

TEST(TensorBoard, RecordsAreFramed) {
  const fs::path directory = scratch("tensorboard");
  TensorBoardWriter(directory, 3).write(3, {{"train/loss", 1.5}});
  const std::string bytes = base::read_file(fs::directory_iterator(directory)->path());
  size_t at = 0;
  int records = 0;
  while (at < bytes.size()) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    uint32_t checksum = 0;
    std::memcpy(&checksum, bytes.data() + at + 12 + length, sizeof checksum);
    EXPECT_EQ(checksum, masked_crc32c(std::string_view(bytes).substr(at + 12, length)));
    at += 16 + length;
    ++records;
  }
  EXPECT_EQ(records, 3);
  EXPECT_NE(bytes.find("train/loss"), std::string::npos);
  // Event.step 3, Event.session_log {status: START}: what came before from step 3 on does not count.
  EXPECT_NE(bytes.find(std::string("\x10\x03\x3a\x02\x08\x01")), std::string::npos);
  fs::remove_all(directory);
}

}  // namespace
}  // namespace sluice::report
