#include "report/watch.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace sluice::report {
namespace {

using ::testing::HasSubstr;

class Watch : public testing::Test {
 protected:
  Watch() : run_(std::filesystem::temp_directory_path() / base::text("sluice-watch-", ::getpid())) {
    std::filesystem::create_directories(run_);
  }
  ~Watch() override { std::filesystem::remove_all(run_); }

  // `slow` steps in which rank 1 takes 1.4 times as long, behind others.
  void write(int usual, int slow, const std::string& end = "") const {
    std::string lines;
    for (int step = 0; step < usual + slow; ++step) {
      StepRecord record{.step = step, .loss = 5, .tokens = 10, .time_ns = 2'000'000};
      record.figures[watch::Figure::kSlowdown] = {1, step < usual ? 1.01 : 1.4, 0.99};
      record.figures[watch::Figure::kWait] = {3, 0.5, 3};
      record.figures[watch::Figure::kPullWait] = {1, 0.2, 1};
      record.figures[watch::Figure::kEndWait] = {2, 0.3, 2};
      if (step >= usual + 4) record.alarms = {{1, watch::Cause::kSlowdown, usual, 1.4}};
      if (step == usual)
        record.critical_path = {{1, "compute", 1'500'000, 1'000'000}, {0, "pull", 300'000, 250'000}};
      lines += to_json(record).dump() + "\n";
      if (step == 2) lines += "{\"step\":2,\"validation_loss\":4}\n";
    }
    base::write_file_atomically(run_ / "metrics.jsonl", lines + end);
  }

  std::filesystem::path run_;
};

TEST_F(Watch, NamesTheSlowRank) {
  write(20, 12, "{\"step\":32,\"lo");
  const WatchedRun watched = watch_run(run_);
  EXPECT_EQ(watched.steps, 32);
  const base::Json json = to_json(watched);
  EXPECT_EQ(json.at("step"), 31);
  EXPECT_EQ(json.at("ranks").at(1).at("alarms"), base::Json::array({"slowdown"}));
  EXPECT_NEAR(json.at("ranks").at(1).at("slowdown").get<double>(), 1.4, 1e-9);
  EXPECT_EQ(json.at("ranks").at(1).at("waits_ms"), 0.5);
  EXPECT_EQ(json.at("ranks").at(0).at("alarms"), base::Json::array());
  EXPECT_EQ(json.at("ranks").at(1).at("waits_for"), "end");
  const std::string text = to_text(watched);
  EXPECT_THAT(text,
              HasSubstr("   1      1.40        0.5  end         slowdown since step 21 (8 of 32 steps)\n"));
  EXPECT_THAT(text, HasSubstr("critical path of step 20, ms (planned):\n   1  compute        1.5 (1.0)\n"));
}

TEST_F(Watch, SaysWhatIsNotKnown) {
  EXPECT_THROW(watch_run(run_), base::InputError);
  base::write_file_atomically(run_ / "metrics.jsonl", "");
  EXPECT_EQ(to_text(watch_run(run_)), "no step yet\n");
  base::write_file_atomically(run_ / "metrics.jsonl", "{\"step\":0,\"time_ms\":3}\n");
  EXPECT_THAT(to_text(watch_run(run_)), HasSubstr("no slowdowns of ranks"));
  write(3, 0);
  EXPECT_TRUE(to_json(watch_run(run_)).at("ranks").at(0).at("slowdown").is_null());
  base::write_file_atomically(run_ / "metrics.jsonl", "{\"step\":0}\n");
  EXPECT_THROW(watch_run(run_), base::InputError);
}

}  // namespace
}  // namespace sluice::report
