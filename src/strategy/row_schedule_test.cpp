#include "strategy/row_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"

namespace sluice::strategy {
namespace {

using Rows = RowSchedule::Rows;

constexpr int kMostLanes = 64;

const char* name_of(Rows rows) { return rows == Rows::kKeys ? "keys" : "queries"; }

// Identifies rows of an owner lane at a lane.
using RowsAt = std::tuple<int, Rows, int>;  // place, kind, owner

// When rows arrive at lanes. Own rows are always there.
class AtHand {
 public:
  explicit AtHand(const RowSchedule& schedule) {
    for (const RowSchedule::Hop& hop : schedule.hops) {
      const auto [at, added] = due_.try_emplace({hop.to, hop.rows, hop.of}, hop.due);
      twice_ |= !added;
    }
  }
  bool has(int lane, Rows rows, int of, int step) const {
    if (lane == of) return true;
    const auto at = due_.find({lane, rows, of});
    return at != due_.end() && at->second <= step;
  }
  bool twice() const { return twice_; }

 private:
  std::map<RowsAt, int> due_;
  bool twice_ = false;
};

std::string fault_of_returns(const RowSchedule& schedule) {
  // By place and owner: the lanes whose contributions lie there, each as often as it was added.
  std::map<RowsAt, std::multiset<int>> lie;
  std::map<RowsAt, std::multiset<int>> home;
  size_t task = 0;
  std::vector<std::pair<int, std::pair<RowsAt, std::multiset<int>>>> under_way;  // by due step
  const auto arrive = [&](int before) {
    std::erase_if(under_way, [&](auto& of) {
      if (of.first > before) return false;
      auto& [place, sums] = of.second;
      (std::get<0>(place) == std::get<2>(place) ? home : lie)[place].merge(sums);
      return true;
    });
  };
  size_t next = 0;
  for (int step = 0; step <= schedule.steps; ++step) {
    arrive(step);
    for (; task < schedule.tasks.size() && schedule.tasks[task].step == step; ++task) {
      const auto& [_, at, queries, keys] = schedule.tasks[task];
      lie[at == queries ? RowsAt(at, Rows::kKeys, keys) : RowsAt(at, Rows::kQueries, queries)].insert(at);
    }
    for (; next < schedule.returns.size() && schedule.returns[next].issued == step; ++next) {
      const RowSchedule::Return& of = schedule.returns[next];
      const auto at = lie.find({of.from, of.rows, of.of});
      if (at == lie.end() || at->second.empty() || of.due <= of.issued || of.due > schedule.steps)
        return base::text("lane ", of.from, " returns nothing of lane ", of.of, "'s ", name_of(of.rows),
                          " in step ", step);
      under_way.push_back({of.due, {RowsAt(of.to, of.rows, of.of), std::move(at->second)}});
      lie.erase(at);
    }
  }
  arrive(schedule.steps);
  if (next < schedule.returns.size()) return "something is returned behind the last step";
  if (!lie.empty()) return "something is not returned";
  std::map<RowsAt, std::multiset<int>> wanted;
  for (const auto& [step, at, queries, keys] : schedule.tasks) {
    const int of = at == queries ? keys : queries;
    wanted[{of, at == queries ? Rows::kKeys : Rows::kQueries, of}].insert(at);
  }
  return wanted == home ? "" : "a result comes home more or less than once";
}

// Says in words why the schedule is invalid. "" if every pair of lanes that must attend meets once with its
// rows at hand, and every result reaches its owner once.
std::string fault_of(const RowSchedule& schedule) {
  const AtHand at_hand(schedule);
  if (at_hand.twice()) return "rows come to a lane twice";
  for (const auto& [issued, due, rows, of, from, to] : schedule.hops) {
    if (from == to || to == of || due <= issued || !at_hand.has(from, rows, of, issued))
      return base::text("lane ", from, " has no ", name_of(rows), " of lane ", of, " for lane ", to,
                        " in step ", issued);
  }
  std::set<std::pair<int, int>> met;
  std::set<std::pair<int, int>> busy;
  for (const auto& [step, at, queries, keys] : schedule.tasks) {
    if (!met.emplace(queries, keys).second)
      return base::text("lanes ", queries, " and ", keys, " meet twice");
    if (!busy.emplace(step, at).second) return base::text("lane ", at, " attends twice in step ", step);
    if ((at == queries) == (at == keys)) return base::text("lane ", at, " attends to what is not its own");
    if (step >= schedule.steps || !at_hand.has(at, Rows::kQueries, queries, step) ||
        !at_hand.has(at, Rows::kKeys, keys, step))
      return base::text("lane ", at, " attends in step ", step, " to what it has not");
  }
  return fault_of_returns(schedule);
}

// The most sets of other lanes' rows of one kind that a lane has at a time, arriving ones included.
int most_at_hand(const RowSchedule& schedule) {
  // Rows take memory from when they set out until the last step that needs them, for a task or to be sent on.
  std::map<RowsAt, std::pair<int, int>> held;
  for (const RowSchedule::Hop& hop : schedule.hops)
    held[{hop.to, hop.rows, hop.of}] = {hop.issued, hop.issued};
  const auto needed = [&](int lane, Rows rows, int of, int step) {
    const auto at = held.find({lane, rows, of});
    if (at != held.end()) at->second.second = std::max(at->second.second, step);
  };
  for (const auto& [issued, due, rows, of, from, to] : schedule.hops) needed(from, rows, of, due - 1);
  for (const auto& [step, at, queries, keys] : schedule.tasks) {
    needed(at, Rows::kQueries, queries, step);
    needed(at, Rows::kKeys, keys, step);
  }
  std::map<std::tuple<int, Rows, int>, int> count;  // by lane, kind and step
  int most = 0;
  for (const auto& [place, steps] : held) {
    for (int step = steps.first; step <= steps.second; ++step)
      most = std::max(most, ++count[{std::get<0>(place), std::get<1>(place), step}]);
  }
  return most;
}

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
