#include "plan/free_lanes.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace sluice::plan {
namespace {

constexpr int64_t kAnyTime = 1'000;

std::vector<LaneRun> nodes_of(int nodes, int lanes) {
  std::vector<LaneRun> runs;
  for (int node = 0; node < nodes; ++node) runs.push_back({node * lanes, lanes});
  return runs;
}

int first_lane(const FreeLanes& free, const FreeLanes::Place& place) {
  return free.run(place.run).lanes.first;
}

TEST(FreeLanes, NodesOfWhichFewestAreFreeAreFilledFirst) {
  FreeLanes free;
  free.reset(nodes_of(3, 4));
  EXPECT_EQ(free.most_lanes(), 12);
  free.take(free.find(3, true, kAnyTime)->run, 3);
  free.take(free.find(2, true, kAnyTime)->run, 2);
  // One lane of the first node, two of the second, four of the third.
  EXPECT_EQ(first_lane(free, *free.find(1, true, kAnyTime)), 3);
  EXPECT_EQ(first_lane(free, *free.find(2, true, kAnyTime)), 6);
  EXPECT_EQ(first_lane(free, *free.find(4, true, kAnyTime)), 8);
  EXPECT_EQ(free.most_lanes(), 4);
}

TEST(FreeLanes, SeveralNodesAreWholeAndNeighbours) {
  FreeLanes free;
  free.reset(nodes_of(4, 4));
  free.take(1, 1);
  EXPECT_EQ(free.find(8, false, kAnyTime)->run, 2U);
  EXPECT_FALSE(free.find(12, false, kAnyTime));
  const auto [first, end] = free.take(2, 8);
  EXPECT_EQ(first, 2U);
  EXPECT_EQ(end, 4U);
  EXPECT_FALSE(free.find(8, false, kAnyTime));
  EXPECT_EQ(free.most_lanes(), 4);
}

TEST(FreeLanes, AboveLoadsTheLatestInTimeIsTaken) {
  FreeLanes free;
  free.reset({});
  EXPECT_EQ(free.most_lanes(), 0);
  for (const int64_t floor_ns : {10, 30, 20}) {
    const int first = static_cast<int>(floor_ns);
    free.add({.lanes = {first, 2}, .floor_ns = floor_ns, .above = LoadIndex(0)});
  }
  EXPECT_EQ(free.find(2, true, 25)->start_ns, 20);
  EXPECT_FALSE(free.find(2, true, 9));
  EXPECT_FALSE(free.find(3, true, kAnyTime));
  free.raise(2, 40);  // the one from 20 on
  EXPECT_EQ(free.find(2, true, 25)->start_ns, 10);
  EXPECT_EQ(free.find(1, true, 50)->start_ns, 40);
}

// As by looking at each run.
TEST(FreeLanes, WhatIsFoundIsTheFirstOfTheBest) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 83);
    FreeLanes free;
    free.reset(nodes_of(6, 4));
    for (int step = 0; step < 30; ++step) {
      const int lanes = static_cast<int>(rng.between(1, 4));
      const int64_t latest_ns = rng.between(0, 8);
      const auto found = free.find(lanes, true, latest_ns);
      std::optional<size_t> best;
      for (size_t at = 0; at < free.runs(); ++at) {
        const FreeLanes::Run& run = free.run(at);
        if (run.lanes.lanes < lanes || run.floor_ns > latest_ns) continue;
        const auto rank = [](const FreeLanes::Run& of) { return std::pair(of.lanes.lanes, -of.floor_ns); };
        if (!best || rank(run) < rank(free.run(*best))) best = at;
      }
      ASSERT_EQ(found.has_value(), best.has_value()) << "seed " << seed;
      if (!found) continue;
      EXPECT_EQ(found->run, *best) << "seed " << seed;
      const LaneRun taken{first_lane(free, *found), lanes};
      free.take(found->run, lanes);
      if (rng.below(2) == 0) free.add({.lanes = taken, .floor_ns = rng.between(0, 8), .above = LoadIndex(0)});
    }
  }
}

}  // namespace
}  // namespace sluice::plan
