#include "plan/lane_runs.h"

#include <gtest/gtest.h>

namespace sluice::plan {
namespace {

TEST(LaneRuns, RunsEndWithTheirNodes) {
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
