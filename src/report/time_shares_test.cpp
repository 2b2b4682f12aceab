#include "report/time_shares.h"

#include <gtest/gtest.h>

#include "graph/test_graphs.h"

namespace sluice::report {
namespace {

graph::StepGraph random_graph(uint64_t seed, graph::Purpose purpose = graph::Purpose::kTrain) {
  const graph::testing::RandomCase random =
      graph::testing::random_case(seed, {.max_lanes = 3, .max_fsdp = 3});
  return graph::build(random.plan, random.table, random.cost, random.world_size, {.purpose = purpose});
}

TEST(TimeShares, AddUpToRanksTimesTheStepOnRandomGraphs) {
  TimeShares all;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const graph::StepGraph graph = random_graph(seed);
    const TimeShares shares = time_shares(graph);
    ASSERT_EQ(shares.total_ns(), graph.world_size * graph.makespan_ns) << "seed " << seed;
    ASSERT_EQ(shares, time_shares(graph::trace_records(graph), graph.world_size)) << "seed " << seed;
    all += shares;
  }
  for (const int64_t share : {all.compute_ns, all.cp_exchange_ns, all.fsdp_ns, all.pull_push_ns,
                              all.update_ns, all.bubble_ns, all.idle_ns})
    EXPECT_GT(share, 0) << "never seen in 300 cases";
}

TEST(TimeShares, ComputeIsTheCellsDurations) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const graph::StepGraph graph = random_graph(seed);
    int64_t cells_ns = 0;
    int64_t ring_ns = 0;
    for (const graph::Node& node : graph.nodes) {
      if (!graph::is_compute_cell(node.kind)) continue;
      cells_ns += node.duration_ns * static_cast<int64_t>(node.members.size());
      ring_ns += node.cell().cp_exchange_ns * static_cast<int64_t>(node.members.size());
      ASSERT_LE(node.cell().cp_exchange_ns, node.duration_ns);
    }
    const TimeShares shares = time_shares(graph);
    ASSERT_EQ(shares.compute_ns + shares.cp_exchange_ns + shares.fsdp_ns, cells_ns) << "seed " << seed;
    ASSERT_EQ(shares.cp_exchange_ns, ring_ns) << "seed " << seed;
  }
}

TEST(TimeShares, EvaluationHasNoUpdate) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const graph::StepGraph graph = random_graph(seed, graph::Purpose::kEvaluate);
    EXPECT_EQ(time_shares(graph).total_ns(), graph.world_size * graph.makespan_ns) << "seed " << seed;
  }
}

// Two pipelines: ranks 0 and 1 as two stages, rank 2 alone, rank 3 without work.
TEST(TimeShares, EveryInstantHasItsCause) {
  const auto cell = [](int rank, int64_t start_ns, int64_t end_ns, int64_t pipeline) {
    return graph::TraceRecord{.label = "F",
                              .category = "forward",
                              .rank = rank,
                              .start_ns = start_ns,
                              .end_ns = end_ns,
                              .arguments = {{"pipeline", pipeline}, {"pull_seq", 0}}};
  };
  std::vector<graph::TraceRecord> records = {cell(0, 10, 50, 0), cell(1, 55, 95, 0), cell(2, 10, 80, 1)};
  records[2].arguments.emplace_back("predicted_ns", 35);
  records[2].arguments.emplace_back("cp_exchange_ns", 10);
  for (int rank = 0; rank < 4; ++rank) {
    records.push_back({.category = "pull-intra",
                       .rank = rank,
                       .stream = graph::Stream::kLinkIntra,
                       .start_ns = 0,
                       .end_ns = 10,
                       .arguments = {{"seq", 0}}});
    records.push_back({.category = "update", .rank = rank, .start_ns = 98, .end_ns = 99 + rank});
  }
  const TimeShares shares = time_shares(records, 4);
  EXPECT_EQ(shares.compute_ns, 40 + 40 + 50);
  EXPECT_EQ(shares.cp_exchange_ns, 20) << "a cell of twice its predicted time waits twice as long";
  EXPECT_EQ(shares.pull_push_ns, 10 + 10 + 10 + 4 * 3)
      << "three first pulls, and the pushes behind the last cell";
  EXPECT_EQ(shares.bubble_ns, 45 + 45) << "stage 1 fills, stage 0 drains";
  EXPECT_EQ(shares.idle_ns, 15 + 95 + 3 + 2 + 1);
  EXPECT_EQ(shares.update_ns, 1 + 2 + 3 + 4);
  EXPECT_EQ(shares.total_ns(), 4 * 102);
}

}  // namespace
}  // namespace sluice::report
