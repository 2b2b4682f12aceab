#include "report/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "base/text.h"

namespace sluice::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepRecord step() {
  StepRecord step{.step = 4, .loss = 5.25, .tokens = 100, .strategy = "<1,1,1>", .time_ns = 1'500'000'000};
  step.figures[watch::Figure::kSlowdown] = {1, 1.4};
  step.figures[watch::Figure::kWait] = {250, 3};
  step.figures[watch::Figure::kProcessors] = {0.99, watch::kNotKnown};
  step.alarms = {{1, watch::Cause::kSlowdown, 2, 1.4}};
  return step;
}

TEST(Prometheus, SaysWhatScrapersAskFor) {
  const std::string text = prometheus_text(step(), /*tokens=*/7000);
  EXPECT_THAT(text, HasSubstr("\nsluice_loss 5.25\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE sluice_step_seconds gauge\nsluice_step_seconds 1.5\n"));
  EXPECT_THAT(text, HasSubstr("\nsluice_rank_slowdown{rank=\"1\"} 1.4\n"));
  EXPECT_THAT(text, HasSubstr("\nsluice_rank_wait_seconds{rank=\"0\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE sluice_tokens_total counter\nsluice_tokens_total 7000\n"));
  EXPECT_THAT(text, HasSubstr("\nsluice_alarm{rank=\"1\",metric=\"slowdown\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nsluice_rank_processors{rank=\"0\"} 0.99\n"));
  EXPECT_THAT(text, Not(HasSubstr("sluice_rank_processors{rank=\"1\"}"))) << "not known";
  EXPECT_THAT(text, Not(HasSubstr("strategy"))) << "no number";
  EXPECT_THAT(text, Not(HasSubstr("slowest_rank"))) << "not known";
}

// The exposition format: comments, and samples that follow their family's type; each family once.
TEST(Prometheus, EveryLineIsOfTheFormat) {
  const std::regex comment(R"(# (HELP [a-z_]+ .+|TYPE [a-z_]+ (gauge|counter)))");
  const std::regex sample(R"(([a-z_]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?[0-9.e+-]+)");
  const std::string text = prometheus_text(step(), /*tokens=*/1);
  ASSERT_TRUE(text.ends_with("\n"));
  std::set<std::string> families;
  std::string family;
  for (const std::string& line : base::split(text.substr(0, text.size() - 1), '\n')) {
    std::smatch match;
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.rfind(' ') - 7);
      EXPECT_TRUE(families.insert(family).second) << family;
    }
    if (line.starts_with("#")) {
      EXPECT_TRUE(std::regex_match(line, comment)) << line;
    } else {
      ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
      EXPECT_EQ(match[1], family);
    }
  }
}

}  // namespace
}  // namespace sluice::report
