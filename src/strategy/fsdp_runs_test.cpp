#include "strategy/fsdp_runs.h"

#include <gtest/gtest.h>

namespace sluice::strategy {
namespace {

FsdpRuns runs_of(const char* strategy, int gpus_per_node, size_t pipeline = 0) {
  return fsdp_runs(parse_strategy(strategy, 64).pipelines[pipeline], 0, gpus_per_node);
}

TEST(FsdpRuns, AreTheLanesOfANode) {
  EXPECT_EQ(runs_of("<1,1,16,16>", 8), (FsdpRuns{8, 8}));
  EXPECT_EQ(runs_of("<2,1,16,16>", 8), (FsdpRuns{4, 4}));
  EXPECT_EQ(runs_of("<8,1,4,4>", 8), (FsdpRuns{1, 1}));
  EXPECT_EQ(runs_of("<1,1,12,12>", 8), (FsdpRuns{4, 4}));
  EXPECT_EQ(fsdp_runs({.cp = 12, .fsdp = 12}, 8), (FsdpRuns{4, 4}));
}

TEST(FsdpRuns, AreTheWholeGroupInsideANode) {
  EXPECT_EQ(runs_of("<1,1,8,4>", 8), (FsdpRuns{4, 4}));
  EXPECT_EQ(runs_of("<1,1,6,6>", 8), (FsdpRuns{6, 6}));
  EXPECT_EQ(runs_of("<1,1,8>", 8), (FsdpRuns{1, 1}));
}

// The second group of six has two lanes on the first node and four on the next one.
TEST(FsdpRuns, AreTheShortestOfAllGroups) {
  EXPECT_EQ(runs_of("<1,1,12,6>", 8), (FsdpRuns{2, 2}));
  EXPECT_EQ(runs_of("<1,1,3> + <1,1,8,8>", 8, 1), (FsdpRuns{3, 1})) << "no run of eight lies inside a node";
}

TEST(FsdpRuns, SumsOfSeveralNodesTakeAnOperationMore) {
  EXPECT_EQ((FsdpRuns{8, 8}.behind(16)), 2);
  EXPECT_EQ((FsdpRuns{8, 8}.behind(8)), 1);
  EXPECT_EQ((FsdpRuns{4, 1}.behind(8)), 1);
}

}  // namespace
}  // namespace sluice::strategy
