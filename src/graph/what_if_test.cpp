#include "graph/what_if.h"

#include <gtest/gtest.h>

#include <vector>

#include "graph/build.h"
#include "graph/test_graphs.h"
#include "model/outline.h"
#include "model/parameters.h"

namespace sluice::graph {
namespace {

// Two pipelines of one rank each, one with twice the work of the other.
StepGraph two_ranks() {
  const model::Outline outline = model::outline_of_12_heads(4);
  const strategy::StepPlan plan = testing::plan_from_text("2x<1,1,1>", {"600", "300"}, 2);
  return build(plan, model::parameter_table(outline), testing::small_cost(outline), 2);
}

TEST(WhatIf, RanksAsPlannedTakeWhatWasPlanned) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const testing::RandomCase random = testing::random_case(seed, {.tight = false});
    const StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    for (const double pace : {0.0, 1.0}) {
      const std::vector<double> paces(static_cast<size_t>(graph.world_size), pace);
      EXPECT_EQ(makespan_at(graph, paces), graph.makespan_ns);
    }
  }
}

TEST(WhatIf, ASlowRankCostsWhatOthersWaitForIt) {
  const StepGraph graph = two_ranks();
  const int64_t planned_ns = graph.makespan_ns;
  const int64_t busy_slow_ns = makespan_at(graph, std::vector<double>{2.0, 1.0});
  const int64_t idle_slow_ns = makespan_at(graph, std::vector<double>{1.0, 1.5});
  EXPECT_GT(busy_slow_ns, planned_ns * 3 / 2);
  EXPECT_LE(busy_slow_ns, planned_ns * 2);
  // It waits anyway for the other's gradients.
  EXPECT_LT(idle_slow_ns - planned_ns, (busy_slow_ns - planned_ns) / 4);
}

}  // namespace
}  // namespace sluice::graph
