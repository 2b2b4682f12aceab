#include "graph/shared_cores.h"

#include <gtest/gtest.h>

#include "graph/test_graphs.h"
#include "model/outline.h"

namespace sluice::graph {
namespace {

// Ranks that compute from a start on, each for its time.
StepGraph computing(const std::vector<base::Interval>& times_ns, int64_t makespan_ns) {
  StepGraph graph{.world_size = static_cast<int>(times_ns.size()), .makespan_ns = makespan_ns};
  for (int rank = 0; rank < graph.world_size; ++rank) {
    const base::Interval& time = times_ns[static_cast<size_t>(rank)];
    graph.nodes.push_back(
        {.kind = NodeKind::kUpdate, .members = {rank}, .start_ns = time.begin, .end_ns = time.end});
  }
  return graph;
}

TEST(SharedCores, RanksThatWaitLeaveTheirCoresToTheOthers) {
  const StepGraph graph = computing({{0, 1000}, {0, 1000}, {0, 600}, {0, 200}}, 1000);
  EXPECT_EQ(makespan_on_cores_ns(graph, 4, 4), 1000) << "every rank has a core";
  EXPECT_EQ(makespan_on_cores_ns(graph, 4, 2), 200 + 400 * 3 / 4 + 400 / 2);
  EXPECT_EQ(makespan_on_cores_ns(graph, 4, 3), 200 + 400 * 3 / 4 + 400 * 3 / 4)
      << "two ranks leave a core idle";
}

TEST(SharedCores, AMomentWithoutComputationTakesItsTime) {
  const StepGraph graph = computing({{100, 500}, {100, 300}}, 700);
  EXPECT_EQ(makespan_on_cores_ns(graph, 2, 1), 100 + 200 + 200 / 2 + 200);
}

TEST(SharedCores, OfTwoMachinesEachRankCountsAlike) {
  const StepGraph graph = computing({{0, 1000}, {0, 1000}, {0, 1000}, {0, 500}}, 1000);
  EXPECT_EQ(makespan_on_cores_ns(graph, 2, 1), 500 + 500 * 3 / 4);
}

TEST(SharedCores, NothingTakesLessThanItsShareOfTheCores) {
  const model::Outline outline = model::outline_of_12_heads(4);
  const StepGraph graph = build(testing::plan_from_text("<1,2,1> + 2x<1,1,1>", {"30, 40", "20", "90"}, 4),
                                model::parameter_table(outline), testing::small_cost(outline), 4);
  const int64_t shared_ns = makespan_on_cores_ns(graph, 4, 2);
  EXPECT_LT(shared_ns, graph.makespan_ns);
  EXPECT_GE(shared_ns, graph.makespan_ns / 2);
}

}  // namespace
}  // namespace sluice::graph
