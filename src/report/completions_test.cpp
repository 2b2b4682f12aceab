#include "report/completions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "report/metrics_file.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Completions : public testing::Test {
 protected:
  Completions() { fs::create_directories(directory_); }
  ~Completions() override { fs::remove_all(directory_); }
  const fs::path directory_ = fs::temp_directory_path() / base::text("sluice-completions-", ::getpid());
};

Completion completion_of(int64_t step, const std::string& words) {
  return {.step = step,
          .prompt = "Was ist 3 × 4?\n|",
          .completion = words,
          .reward = 0.5,
          .tokens = 7,
          .finish_reason = "length"};
}

std::vector<int64_t> steps_in(const fs::path& directory) {
  std::vector<int64_t> steps;
  for (const Completion& completion : read_completions(directory)) steps.push_back(completion.step);
  return steps;
}

TEST_F(Completions, ReadsWhatWasWritten) {
  EXPECT_TRUE(read_completions(directory_).empty());
  const std::vector<Completion> written = {completion_of(3, "zwölf 🙂 <b>"), completion_of(3, "")};
  CompletionsWriter(directory_, 0).write(written);
  const std::vector<Completion> read = read_completions(directory_);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].completion, "zwölf 🙂 <b>");
  EXPECT_EQ(read[0].prompt, written[0].prompt);
  EXPECT_EQ(read[1].completion, "");
  EXPECT_EQ(read[1].finish_reason, "length");
}

TEST_F(Completions, ResumedRunDropsTheStepsItRepeats) {
  CompletionsWriter(directory_, 0)
      .write({completion_of(0, "a"), completion_of(10, "b"), completion_of(20, "c")});
  CompletionsWriter(directory_, 20).write({completion_of(20, "d")});
  EXPECT_THAT(steps_in(directory_), ElementsAre(0, 10, 20));
  EXPECT_EQ(read_completions(directory_).back().completion, "d");
}

TEST_F(Completions, LeavesOutALineThatIsCutOffAndNamesADamagedOne) {
  CompletionsWriter(directory_, 0).write({completion_of(0, "a")});
  std::ofstream(directory_ / "completions.jsonl", std::ios::app) << R"({"step": 1, "prom)";
  EXPECT_THAT(steps_in(directory_), ElementsAre(0));
  std::ofstream(directory_ / "completions.jsonl") << "{\"step\": -1}\n";
  try {
    read_completions(directory_);
    FAIL() << "a negative step was read";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("completions.jsonl:1"));
    EXPECT_THAT(error.what(), HasSubstr("-1"));
  }
}

TEST_F(Completions, AreShownInOneLineEachWithoutCuttingCharacters) {
  std::string words;
  for (int i = 0; i < 100; ++i) words += "é";
  const std::vector<std::string> lines =
      completion_lines({completion_of(0, words), completion_of(0, "x\ny")});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("reward 0.500"));
  EXPECT_THAT(lines[0], HasSubstr("é…"));
  EXPECT_EQ(lines[1].find('\n'), std::string::npos);
}

TEST_F(Completions, MarkdownKeepsTheTableWhole) {
  const std::string table = completions_markdown({completion_of(0, "a|b\n<script>")});
  EXPECT_THAT(table, HasSubstr("a\\|b<br>&lt;script>"));
  EXPECT_EQ(std::ranges::count(table, '\n'), 3);
}

TEST_F(Completions, AStepWritesItsOwnBesideItsMetrics) {
  MetricsWriter writer({directory_, true, 0});
  StepRecord step;
  step.loss = 1;
  writer.write(step);
  EXPECT_FALSE(fs::exists(directory_ / "completions.jsonl"));
  step.step = 1;
  step.completions = {completion_of(1, "é")};
  writer.write(step);
  EXPECT_THAT(steps_in(directory_), ElementsAre(1));
  std::string events;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents"))
      events = base::read_file(entry.path());
  }
  EXPECT_THAT(events, HasSubstr("rl/completions"));
  EXPECT_THAT(events, HasSubstr("| prompt | completion |"));
}

}  // namespace
}  // namespace sluice::report
