#include "strategy/row_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace sluice::strategy {
namespace {

using Rows = RowSchedule::Rows;

constexpr int kMostLanes = 64;

// How often each pair of lanes meets: (queries, keys).
std::map<std::pair<int, int>, int> meetings(const RowSchedule& schedule) {
  std::map<std::pair<int, int>, int> met;
  for (const RowSchedule::Task& task : schedule.tasks) ++met[{task.queries, task.keys}];
  return met;
}

void expect_all_meet(const RowSchedule& schedule) {
  EXPECT_EQ(fault_of(schedule), "");
  const auto met = meetings(schedule);
  for (int queries = 0; queries < schedule.lanes; ++queries) {
    for (int keys = 0; keys < schedule.lanes; ++keys) {
      if (queries == keys) continue;
      EXPECT_EQ(met.contains({queries, keys}), !schedule.contiguous || keys < queries);
    }
  }
}

// The most rows that one lane sends between nodes.
int64_t most_sent_between(const std::vector<RowSchedule::Hop>& hops, int in_node) {
  std::map<int, int64_t> by_lane;
  int64_t most = 0;
  for (const RowSchedule::Hop& hop : hops) {
    if (hop.from / in_node != hop.to / in_node) most = std::max(most, ++by_lane[hop.from]);
  }
  return most;
}

TEST(RowSchedule, EveryRingMeetsEveryPairOnceOnOneLevelAndOnTwo) {
  for (int lanes = 1; lanes <= kMostLanes; ++lanes) {
    for (int in_node = 1; in_node <= lanes; ++in_node) {
      if (lanes % in_node != 0) continue;
      const RowSchedule ring = ring_schedule(lanes, in_node);
      expect_all_meet(ring);
      const int nodes = lanes / in_node;
      EXPECT_EQ(ring.hops.size(), static_cast<size_t>(lanes * (lanes - 1)));
      if (in_node == 1 || nodes == 1) {
        EXPECT_LE(most_at_hand(ring), 2);
        EXPECT_EQ(ring.returns.size(), ring.hops.size());
        continue;
      }
      EXPECT_EQ(most_sent_between(ring.hops, in_node), nodes - 1);
      EXPECT_EQ(most_sent_between(ring.returns, in_node), nodes - 1);
      EXPECT_LE(most_at_hand(ring), 4) << lanes << " lanes, " << in_node << " of a node";
    }
  }
}

TEST(RowSchedule, BalancedLanesMeetInHalfTheSteps) {
  for (int lanes = 1; lanes <= kMostLanes; ++lanes) {
    const RowSchedule balanced = balanced_schedule(lanes);
    expect_all_meet(balanced);
    EXPECT_EQ(balanced.steps, lanes / 2 + 1);
    EXPECT_EQ(balanced.tasks.size(), static_cast<size_t>(lanes * (lanes - 1) / 2));
    // An odd number of lanes is busy in every step; of an even number half are idle in the last step.
    const size_t idle = lanes % 2 == 0 ? static_cast<size_t>(lanes / 2) : 0;
    EXPECT_EQ(balanced.tasks.size() + idle, static_cast<size_t>(lanes * (balanced.steps - 1)));
    EXPECT_LE(most_at_hand(balanced), 2);
  }
}

TEST(RowSchedule, QueriesGoRoundAndOutputsStraightHome) {
  for (int lanes = 1; lanes <= kMostLanes; ++lanes) {
    const RowSchedule queries = query_schedule(lanes);
    expect_all_meet(queries);
    for (const RowSchedule::Hop& hop : queries.hops) {
      EXPECT_EQ(hop.rows, Rows::kQueries);
      EXPECT_EQ(hop.to, (hop.from + 1) % lanes);
    }
    for (const RowSchedule::Return& of : queries.returns) EXPECT_EQ(of.to, of.of);
    EXPECT_LE(most_at_hand(queries), 2);
  }
}

TEST(RowSchedule, StraightFromOwnersAsFarAsAnythingIsSeen) {
  for (int lanes = 2; lanes <= kMostLanes; ++lanes) {
    std::vector<int> behind;
    for (int lane = 1; lane < lanes; lane += 1 + lane % 3) behind.push_back(lane);
    const RowSchedule direct = direct_schedule(lanes, behind);
    EXPECT_EQ(fault_of(direct), "");
    EXPECT_EQ(direct.tasks.size(), behind.size() * static_cast<size_t>(lanes));
    EXPECT_LE(most_at_hand(direct), 2);
  }
}

TEST(RowSchedule, FaultsAreNamed) {
  const RowSchedule good = ring_schedule(3);
  const auto with = [&](auto change) {
    RowSchedule bad = good;
    change(bad);
    return fault_of(bad);
  };
  EXPECT_EQ(with([](RowSchedule& s) { s.tasks[0].keys = s.tasks[0].queries; }),
            "lane 0 attends to what is not its own");
  EXPECT_EQ(with([](RowSchedule& s) { s.tasks[1].step = 0; }), "lane 1 attends in step 0 to what it has not");
  EXPECT_EQ(with([](RowSchedule& s) { s.tasks.push_back(s.tasks.back()); }), "lanes 2 and 0 meet twice");
  EXPECT_EQ(with([](RowSchedule& s) { s.hops.push_back(s.hops.back()); }), "rows come to a lane twice");
  EXPECT_EQ(with([](RowSchedule& s) { s.hops[3].issued = 0; }),
            "lane 0 has no keys of lane 2 for lane 1 in step 0");
  EXPECT_EQ(with([](RowSchedule& s) { s.returns.pop_back(); }), "something is not returned");
  EXPECT_EQ(with([](RowSchedule& s) { s.returns.push_back(s.returns.back()); }),
            "lane 2 returns nothing of lane 0's keys in step 2");
}

}  // namespace
}  // namespace sluice::strategy
