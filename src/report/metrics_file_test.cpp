#include "report/metrics_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "report/tensorboard.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const std::string& name) {
  const fs::path directory = fs::temp_directory_path() / base::text("sluice-report-", name, "-", ::getpid());
  fs::remove_all(directory);
  fs::create_directories(directory);
  return directory;
}

StepRecord metrics_of(int64_t step, double loss) {
  StepRecord metrics;
  metrics.step = step;
  metrics.loss = loss;
  metrics.time_ns = 10'000'000;
  metrics.predicted_ns = 11'000'000;
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

TEST(Metrics, ResumedRunKnowsWhatItsEarlierPartLeft) {
  const fs::path directory = scratch("earlier");
  {
    MetricsWriter writer({directory, false, 0});
    for (int64_t step = 0; step < 4; ++step) writer.write(metrics_of(step, 1));
    writer.write(EvaluationMetrics{.step = 3, .validation_loss = 1, .targets = 1});
    EXPECT_EQ(writer.missing_steps(), 0);
  }
  const auto missing = [&](int64_t first_step) {
    return MetricsWriter({directory, false, first_step}).missing_steps();
  };
  EXPECT_EQ(missing(6), 2);
  {
    const MetricsWriter writer({directory, false, 4});
    EXPECT_EQ(writer.missing_steps(), 0);
    EXPECT_TRUE(writer.was_evaluated());
  }
  {
    const MetricsWriter writer({directory, false, 3});
    EXPECT_EQ(writer.missing_steps(), 0);
    EXPECT_FALSE(writer.was_evaluated());
  }
  fs::remove(directory / "metrics.jsonl");
  EXPECT_EQ(missing(4), 4);
  fs::remove_all(directory);
}

TEST(Metrics, ResumedRunDropsWhatAKilledOneLeftUnfinished) {
  const fs::path directory = scratch("unfinished");
  const std::string kept = "{\"step\":0,\"loss\":1}\n{\"step\":1,\"loss\":1}\n";
  for (const std::string rest :
       {"{\"step\":2,\"lo", "{\"step\":[],\"loss\":1}\n", "{\"step\":-9223372036854775808,\"loss\":1}\n",
        "\xff\n{\"step\":1}", "\n\n", "7\n"}) {
    base::write_file_atomically(directory / "metrics.jsonl", kept + rest);
    EXPECT_EQ(MetricsWriter({directory, false, 2}).missing_steps(), 0) << rest;
    EXPECT_EQ(base::read_file(directory / "metrics.jsonl"), kept) << rest;
  }
  fs::remove_all(directory);
}

TEST(Metrics, FallbackIsNullOrItsReason) {
  StepRecord metrics = metrics_of(0, 1);
  EXPECT_TRUE(to_json(metrics).at("fallback").is_null());
  metrics.fallback = "no room";
  EXPECT_EQ(to_json(metrics).at("fallback"), "no room");
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
