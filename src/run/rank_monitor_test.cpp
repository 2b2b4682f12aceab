#include "run/rank_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/build.h"
#include "graph/test_graphs.h"
#include "model/outline.h"
#include "model/parameters.h"

namespace sluice::run {
namespace {

using ::testing::ElementsAre;
using watch::Figure;

constexpr int kRanks = 4;

graph::StepGraph four_ranks() {
  const model::Outline outline = model::outline_of_12_heads(4);
  const strategy::StepPlan plan =
      graph::testing::plan_from_text("4x<1,1,1>", {"400, 200", "500", "300, 300", "350+250"}, kRanks);
  return graph::build(plan, model::parameter_table(outline), graph::testing::small_cost(outline), kRanks);
}

// The statuses of ranks that take `paces` times their plan.
std::vector<RankStatus> words(const std::vector<double>& paces) {
  std::vector<RankStatus> all(paces.size());
  for (size_t rank = 0; rank < paces.size(); ++rank) {
    all[rank].sample[Figure::kSlowdown] = static_cast<int64_t>(1e6 * paces[rank]);
    all[rank].sample[Figure::kCompute] = 4000;
    all[rank].sample[Figure::kHost] = 0;
  }
  return all;
}

// The record of the last of so many equal steps.
report::StepRecord looked(RankMonitor& watch, const graph::StepGraph& graph,
                          const std::vector<RankStatus>& said, int64_t from, int64_t steps) {
  report::StepRecord record;
  for (int64_t step = from; step < from + steps; ++step) {
    record = {.step = step};
    watch.observe(said, graph, record);
  }
  return record;
}

TEST(RankMonitor, PutsWhatRanksSayIntoTheRecord) {
  const graph::StepGraph graph = four_ranks();
  RankMonitor watch("");
  const report::StepRecord record = looked(watch, graph, words({1, 1.25, 1, 0.875}), 0, 1);
  EXPECT_THAT(record.figures[Figure::kSlowdown], ElementsAre(1, 1.25, 1, 0.875));
  EXPECT_EQ(record.slowest_rank, 1);
  EXPECT_NEAR(record.max_slowdown.value(), 1.25, 1e-6);
  EXPECT_TRUE(record.alarms.empty());
  EXPECT_TRUE(record.figures[Figure::kAwaited].empty()) << "no transport says whom it waits for";
}

// Half of the steps have two ranks a tenth slower, so that ranks vary by some hundredths.
TEST(RankMonitor, KnowsHowMuchRanksVary) {
  const graph::StepGraph graph = four_ranks();
  RankMonitor watch("");
  for (int64_t step = 0; step < watch::Scatter::kSteps; ++step) {
    EXPECT_EQ(watch.deviation(), 0) << step;
    looked(watch, graph, step % 2 == 0 ? words({1, 1.1, 1, 1.1}) : words({1.1, 1, 1.1, 1}), step, 1);
  }
  EXPECT_GT(watch.deviation(), 0.03);
  EXPECT_LT(watch.deviation(), 0.2);
}

TEST(RankMonitor, SaysWhatPlansShouldCountWith) {
  const graph::StepGraph graph = four_ranks();
  RankMonitor watch("");
  looked(watch, graph, words({1, 1, 1, 1}), 0, 40);
  EXPECT_THAT(watch.slowdown_percent(kRanks), ElementsAre(100, 100, 100, 100));
  EXPECT_FALSE(watch.slowest().has_value());
  const report::StepRecord record = looked(watch, graph, words({1, 1, 1.58, 1}), 40, 20);
  ASSERT_EQ(record.alarms.size(), 1U);
  EXPECT_EQ(record.alarms[0].rank, 2);
  EXPECT_EQ(record.alarms[0].cause, watch::Cause::kSlowdown);
  EXPECT_GE(record.alarms[0].since, 38);
  EXPECT_THAT(watch.slowdown_percent(kRanks), ElementsAre(100, 100, 160, 100)) << "in steps of five";
  EXPECT_EQ(watch.slowest()->rank, 2);
  looked(watch, graph, words({1, 1, 1, 1}), 60, 20);
  EXPECT_THAT(watch.slowdown_percent(kRanks), ElementsAre(100, 100, 100, 100));
}

TEST(RankMonitor, NamesALinkThatOthersWaitForBeyondTheirPlan) {
  const graph::StepGraph graph = four_ranks();
  RankMonitor watch("");
  std::vector<RankStatus> said = words({1, 1, 1, 1});
  for (RankStatus& word : said) word.awaited_rank = 0;
  looked(watch, graph, said, 0, 40);
  for (const int rank : {0, 1, 2}) {
    said[static_cast<size_t>(rank)].awaited_rank = 3;
    said[static_cast<size_t>(rank)].awaited_ns = 3 * graph.makespan_ns;
  }
  const report::StepRecord record = looked(watch, graph, said, 40, 12);
  ASSERT_EQ(record.alarms.size(), 1U);
  EXPECT_EQ(record.alarms[0].rank, 3);
  EXPECT_EQ(record.alarms[0].cause, watch::Cause::kLink);
  EXPECT_GT(record.figures[Figure::kAwaited][3], 0);
}

// Statuses in which rank 3 is stopped: ranks 0 and 1 wait for it, and rank 2 waits for rank 1, which is late
// because of rank 3.
std::vector<RankStatus> words_of_a_stop(int64_t wait_ns) {
  std::vector<RankStatus> said = words({1, 1, 1, 1});
  for (const auto& [rank, awaited] : {std::pair{0, 3}, {1, 3}, {2, 1}}) {
    said[static_cast<size_t>(rank)].awaited_rank = awaited;
    said[static_cast<size_t>(rank)].awaited_ns = wait_ns;
  }
  return said;
}

TEST(RankMonitor, NamesNoLinkBetweenRanksOfOneHost) {
  const graph::StepGraph graph = four_ranks();
  for (const bool one_host : {true, false}) {
    RankMonitor watch("");
    std::vector<RankStatus> said = words_of_a_stop(0);
    for (RankStatus& word : said) word.first_of_host = 0;
    looked(watch, graph, said, 0, 40);
    said = words_of_a_stop(3 * graph.makespan_ns);
    for (RankStatus& word : said) word.first_of_host = 0;
    if (!one_host) said[3].first_of_host = 3;
    const report::StepRecord record = looked(watch, graph, said, 40, 12);
    ASSERT_EQ(record.alarms.size(), one_host ? 0U : 1U);
    if (!one_host) {
      EXPECT_EQ(record.alarms[0].rank, 3);
    }
    EXPECT_EQ(record.figures[Figure::kAwaited][1], 0) << "it waits for rank 3";
  }
}

TEST(RankMonitor, ARankThatWaitsForAStoppedOneIsNotNamed) {
  const graph::StepGraph graph = four_ranks();
  RankMonitor watch("");
  looked(watch, graph, words_of_a_stop(0), 0, 40);
  const report::StepRecord record = looked(watch, graph, words_of_a_stop(3 * graph.makespan_ns), 40, 12);
  ASSERT_EQ(record.alarms.size(), 1U);
  EXPECT_EQ(record.alarms[0].rank, 3);
}

TEST(RankMonitor, ARankBehindASlowLinkIsNamedAlthoughItWaitsToo) {
  const graph::StepGraph graph = four_ranks();
  RankMonitor watch("");
  std::vector<RankStatus> said = words({1, 1, 1, 1});
  for (RankStatus& word : said) word.awaited_rank = 0;
  looked(watch, graph, said, 0, 40);
  for (const auto& [rank, awaited] : {std::pair{0, 3}, {1, 3}, {2, 3}, {3, 1}}) {
    said[static_cast<size_t>(rank)].awaited_rank = awaited;
    said[static_cast<size_t>(rank)].awaited_ns = 3 * graph.makespan_ns;
  }
  const report::StepRecord record = looked(watch, graph, said, 40, 12);
  ASSERT_EQ(record.alarms.size(), 1U);
  EXPECT_EQ(record.alarms[0].rank, 3);
  EXPECT_EQ(record.alarms[0].cause, watch::Cause::kLink);
}

}  // namespace
}  // namespace sluice::run
