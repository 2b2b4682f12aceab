#include "report/step_record.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/json.h"

namespace sluice::report {
namespace {

// Every member of the table has a value of its own.
StepRecord filled() {
  StepRecord step;
  int64_t next = 1;
  for (const Metric& metric : step_metrics()) {
    std::visit(
        [&](auto member) {
          auto& value = step.*member;
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
            value = std::to_string(next++);
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, int64_t>) {
            value = 1'000'000 * next++;
          } else {
            value = static_cast<double>(next++);
          }
        },
        metric.member);
  }
  return step;
}

TEST(StepRecord, LineReadsBackToItself) {
  const base::Json line = to_json(filled());
  EXPECT_EQ(line.size(), step_metrics().size());
  EXPECT_EQ(to_json(step_record(line, "a line")), line);
}

TEST(StepRecord, WhatRanksSaidReadsBackToItself) {
  StepRecord step = filled();
  for (const watch::Figure figure : watch::all_figures())
    step.figures[figure] = {static_cast<double>(figure), watch::kNotKnown};
  step.alarms = {{3, watch::Cause::kLink, 12, 1.25}};
  step.critical_path = {{1, "compute", 2'000'000, 1'000'000}};
  step.acts = {{"teacher", 3'000'000, 2'500'000, 17, 18}, {"update", 5'000'000, 0, 19, 20}};
  const base::Json line = to_json(step);
  EXPECT_EQ(line.size(), step_metrics().size() + watch::kFigures + 3);
  EXPECT_TRUE(line.at("rank_slowdown").at(1).is_null());
  const StepRecord back = step_record(line, "a line");
  EXPECT_EQ(to_json(back), line);
  EXPECT_EQ(back.alarms, step.alarms);
  EXPECT_EQ(back.critical_path.at(0).time_ns, 2'000'000);
  ASSERT_EQ(back.acts.size(), 2);
  EXPECT_EQ(back.acts[0].predicted_ns, 2'500'000);
  EXPECT_EQ(back.acts[1].predicted_peak_bytes, 20);
  base::Json wrong = line;
  wrong["acts"][0]["ms"] = "long";
  EXPECT_THROW(step_record(wrong, "a line"), base::InputError);
  wrong = line;
  wrong["alarms"][0]["metric"] = "mood";
  EXPECT_THROW(step_record(wrong, "a line"), base::InputError);
  wrong = line;
  wrong["rank_slowdown"][0] = "fast";
  EXPECT_THROW(step_record(wrong, "a line"), base::InputError);
}

TEST(StepRecord, MembersAndKeysStandInTheTableOnce) {
  std::set<std::string> values;
  const base::Json line = to_json(filled());
  for (const auto& [key, value] : line.items()) values.insert(value.dump());
  EXPECT_EQ(values.size(), step_metrics().size());
}

TEST(StepRecord, WhatIsMissingOrNullIsUnknown) {
  const StepRecord step =
      step_record({{"step", 3}, {"time_ms", 2.5}, {"loss", nullptr}, {"fallback", nullptr}}, "a line");
  EXPECT_EQ(step.step, 3);
  EXPECT_EQ(step.time_ns, 2'500'000);
  EXPECT_FALSE(step.loss);
  EXPECT_EQ(step.fallback, "");
  EXPECT_THROW(step_record({{"step", 3}}, "a line"), base::InputError);
  EXPECT_THROW(step_record({{"step", 3}, {"time_ms", 1}, {"pull_bytes", -1}}, "a line"), base::InputError);
}

TEST(StepRecord, RanksFiguresAreAddedUpAsTheTableSays) {
  StepRecord first = filled(), second;
  second.pull_bytes = 5;
  second.peak_bytes = int64_t{1} << 40;
  second.tokens = 99;
  const RankFigures of_ranks[] = {rank_figures(first), rank_figures(second)};
  const StepRecord before = first;
  fold(of_ranks, first);
  EXPECT_EQ(first.pull_bytes, before.pull_bytes + 5);
  EXPECT_EQ(first.peak_bytes, int64_t{1} << 40);
  EXPECT_EQ(first.pull_push_exposed_ns, before.pull_push_exposed_ns);
  EXPECT_EQ(first.tokens, before.tokens);
}

}  // namespace
}  // namespace sluice::report
