#include "published/lane_floor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace sluice::published {
namespace {

// The idle time of all lanes of the run until they are free together.
int64_t idle_ns(const LaneFloor& floor, plan::LaneRun run) {
  int64_t idle_ns = 0;
  for (int lane = run.first; lane < run.first + run.lanes; ++lane)
    idle_ns += floor.end_ns(run) - floor.end_ns(lane);
  return idle_ns;
}

plan::LaneRun soonest_by_search(const LaneFloor& floor, int lanes) {
  plan::LaneRun best{0, lanes};
  for (int first = 1; first + lanes <= floor.lanes(); ++first) {
    const plan::LaneRun run{first, lanes};
    const auto key = [&](plan::LaneRun of) { return std::pair(floor.end_ns(of), idle_ns(floor, of)); };
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
      const plan::LaneRun run = floor.soonest(lanes);
      const plan::LaneRun expected = soonest_by_search(floor, lanes);
      ASSERT_EQ(run.first, expected.first);
      floor.raise(run, floor.end_ns(run) + rng.between(1, 5));
    }
  }
}

}  // namespace
}  // namespace sluice::published
