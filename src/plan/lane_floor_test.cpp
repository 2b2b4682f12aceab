#include "plan/lane_floor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace sluice::plan {
namespace {

// What all its lanes leave idle before they are free together.
int64_t idle_ns(const LaneFloor& floor, LaneRun run) {
  int64_t idle_ns = 0;
  for (int lane = run.first; lane < run.first + run.lanes; ++lane)
    idle_ns += floor.end_ns(run) - floor.end_ns(lane);
  return idle_ns;
}

LaneRun soonest_by_search(const LaneFloor& floor, int lanes) {
  LaneRun best{0, lanes};
  for (int first = 1; first + lanes <= floor.lanes(); ++first) {
    const LaneRun run{first, lanes};
    const auto key = [&](LaneRun of) { return std::pair(floor.end_ns(of), idle_ns(floor, of)); };
    if (key(run) < key(best)) best = run;
  }
  return best;
}

TEST(LaneFloor, FindsTheRunThatASearchFinds) {
  base::Rng rng(1, 26);
  for (int i = 0; i < 200; ++i) {
    LaneFloor floor(static_cast<int>(rng.between(1, 40)));
    for (int put = 0; put < 60; ++put) {
      const int lanes = static_cast<int>(rng.between(1, floor.lanes()));
      const LaneRun run = floor.soonest(lanes);
      const LaneRun expected = soonest_by_search(floor, lanes);
      ASSERT_EQ(run.first, expected.first);
      floor.raise(run, floor.end_ns(run) + rng.between(1, 5));
    }
  }
}

TEST(LaneFloor, RunsEndWithTheirNodes) {
  strategy::Pipeline pipeline{.scheme = {.tp = 2, .pp = 2, .cp = 5}, .ranks = {}};
  for (int rank = 4; rank < 24; ++rank) pipeline.ranks.push_back(rank);
  // Stage 0 starts in the middle of node 0: lanes 0-1 | 2-4. Stage 1 lies at rank 14: lanes 0 | 1-4.
  const std::vector<LaneRun> runs = node_runs(pipeline, 8);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].lanes, 1);
  EXPECT_EQ(runs[1].lanes, 1);
  EXPECT_EQ(runs[2].first, 2);
  EXPECT_EQ(runs[2].lanes, 3);
}

}  // namespace
}  // namespace sluice::plan
