#include "strategy/topology.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace sluice::strategy {
namespace {

// Nodes of 4 in racks of 8 in pods of 32.
const Topology kPods(4, 2, {8, 32});

TEST(Topology, RanksMeetInTheSmallestGroupThatHasBoth) {
  EXPECT_EQ(kPods.levels(), 4);
  EXPECT_EQ(kPods.level_of(5, 5), 0);
  EXPECT_EQ(kPods.level_of(4, 7), 0);
  EXPECT_EQ(kPods.level_of(3, 4), 1);
  EXPECT_EQ(kPods.level_of(7, 8), 2);
  EXPECT_EQ(kPods.level_of(0, 31), 2);
  EXPECT_EQ(kPods.level_of(31, 32), 3);
  EXPECT_EQ(kPods.group_of(33, 2), 1);
  EXPECT_EQ(kPods.group_of(1000, 3), 0) << "the last level has no groups";
}

TEST(Topology, OfNodesAloneHasTwoLevels) {
  const Topology nodes = 8;
  EXPECT_EQ(nodes.levels(), 2);
  EXPECT_EQ(nodes.level_of(7, 8), 1);
  EXPECT_EQ(nodes.level_of(0, 1000), 1);
  EXPECT_EQ(nodes.nodes_of(8), 1);
  EXPECT_EQ(nodes.nodes_of(9), 2);
}

TEST(Topology, KnowsWhereSoManyRanksMeet) {
  EXPECT_EQ(kPods.level_of_first(4), 0);
  EXPECT_EQ(kPods.level_of_first(5), 1);
  EXPECT_EQ(kPods.level_between_nodes(4), 1);
  EXPECT_EQ(kPods.level_between_nodes(33), 3);
  EXPECT_EQ(kPods.level_of_first(32), 2);
  EXPECT_EQ(kPods.level_of_first(33), 3);
  EXPECT_EQ(kPods.level_of_any(2), 0);
  EXPECT_EQ(kPods.level_of_any(3), 3) << "some three lie on both sides of a pod's end";
  EXPECT_EQ(kPods.level_of_any(8), 1);
  EXPECT_EQ(kPods.level_of_any(16), 2);
}

// StageLanes keeps neighbours' levels alone, yet gives the level of any run, for any order of ranks.
TEST(Topology, RunsOfLanesMeetOnTheHighestLevelBetweenNeighbours) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 3);
    Pipeline pipeline{.scheme = {.tp = 2, .pp = 2, .cp = 6}, .ranks = {}};
    for (int rank = 0; rank < 48; ++rank) pipeline.ranks.push_back(rank);
    if (seed % 2 == 0) rng.shuffle(pipeline.ranks);
    pipeline.ranks.resize(24);
    for (int stage = 0; stage < 2; ++stage) {
      const StageLanes lanes = stage_lanes(pipeline, stage, kPods);
      const auto first = static_cast<int>(rng.below(6));
      const auto run = static_cast<int>(rng.between(1, 6 - first));
      int highest = 0;
      for (int a = first; a < first + run; ++a) {
        for (int b = first; b < first + run; ++b) {
          for (int t = 0; t < 2; ++t)
            highest = std::max(highest,
                               kPods.level_of(pipeline.rank_of(stage, a, t), pipeline.rank_of(stage, b, t)));
          const bool together = lanes.node[static_cast<size_t>(a)] == lanes.node[static_cast<size_t>(b)];
          EXPECT_EQ(together,
                    kPods.same_node(pipeline.rank_of(stage, a, 0), pipeline.rank_of(stage, b, 0)) &&
                        kPods.same_node(pipeline.rank_of(stage, a, 1), pipeline.rank_of(stage, b, 1)));
        }
      }
      EXPECT_EQ(lanes.level_of(first, run), highest);
    }
    int boundary = 0;
    for (int at = 0; at < 12; ++at) {
      boundary = std::max(boundary, kPods.level_of(pipeline.ranks[static_cast<size_t>(at)],
                                                   pipeline.ranks[static_cast<size_t>(at) + 12]));
    }
    EXPECT_EQ(boundary_level(pipeline, 0, kPods), boundary);
  }
}

TEST(Topology, AdaptersAreNumberedThroughAllNodes) {
  EXPECT_EQ(kPods.nic_of(1), 0);
  EXPECT_EQ(kPods.nic_of(2), 1);
  EXPECT_EQ(kPods.nic_of(9), 4);
  EXPECT_EQ(Topology(3, 2).nic_of(3), 2) << "two of a node of three";
}

TEST(Topology, GroupsAreSeveralWholeOnes) {
  EXPECT_EQ(topology_fault(8, {}), "");
  EXPECT_EQ(topology_fault(8, std::vector<int>{16, 64}), "");
  EXPECT_EQ(topology_fault(0, {}), "nodes of 0 ranks: give 1 or more");
  EXPECT_EQ(topology_fault(8, std::vector<int>{8}),
            "groups of 8 ranks are not several whole ones of 8: give a multiple of it");
  EXPECT_EQ(topology_fault(8, std::vector<int>{16, 40}),
            "groups of 40 ranks are not several whole ones of 16: give a multiple of it");
}

}  // namespace
}  // namespace sluice::strategy
