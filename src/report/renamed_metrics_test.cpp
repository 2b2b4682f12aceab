#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "report/step_record.h"

namespace sluice::report {
namespace {

TEST(RenamedMetrics, LinesOfBeforeAreRead) {
  const base::Json line = {{"step", 3},
                           {"time_ms", 2.5},
                           {"epoch", 2},
                           {"ring_bytes", 7},
                           {"link_exposed_ms", 1.5},
                           {"slowest_pace", 1.25},
                           {"speaking", "1x<1,1,1>"},
                           {"rank_pace", {1, 1.25}},
                           {"alarms", {{{"rank", 1}, {"metric", "pace"}, {"since", 1}, {"score", 2}}}},
                           {"path", {{{"rank", 1}, {"kind", "cells"}, {"ms", 1}, {"planned_ms", 2}}}}};
  const StepRecord step = step_record(line, "a line");
  EXPECT_EQ(step.restarts, 2);
  EXPECT_EQ(step.cp_ep_bytes, 7);
  EXPECT_EQ(step.pull_push_exposed_ns, 1'500'000);
  EXPECT_EQ(step.max_slowdown, 1.25);
  EXPECT_EQ(step.rollout_strategy, "1x<1,1,1>");
  EXPECT_EQ(step.figures[watch::Figure::kSlowdown], (std::vector<double>{1, 1.25}));
  ASSERT_EQ(step.alarms.size(), 1U);
  EXPECT_EQ(step.alarms.front().cause, watch::Cause::kSlowdown);
  ASSERT_EQ(step.critical_path.size(), 1U);
  EXPECT_EQ(to_json(step).at("restarts"), 2);
  EXPECT_FALSE(to_json(step).contains("epoch"));
}

TEST(RenamedMetrics, FaultsHaveTheNameThatStandsThere) {
  try {
    step_record({{"step", 3}, {"time_ms", 1}, {"ring_bytes", -1}}, "a line");
    FAIL() << "a negative count";
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("ring_bytes"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice::report
