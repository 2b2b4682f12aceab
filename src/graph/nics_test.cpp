#include "graph/nics.h"

#include <gtest/gtest.h>

#include "graph/clock.h"
#include "graph/test_graphs.h"
#include "model/outline.h"

namespace sluice::graph {
namespace {

// Two stages on two nodes of one rank each.
struct TwoNodes {
  model::Outline model = model::outline_of_12_heads(4);
  model::ParameterTable table = model::parameter_table(model);
  cost::CostModel cost = testing::small_cost(model, {.gpus_per_node = 1});
  StepGraph graph = build(testing::plan_from_text("<1,2,1>", {"30, 40"}, 2), table, cost, 2);

  Node& first(NodeKind kind) {
    for (Node& node : graph.nodes) {
      if (node.kind == kind) return node;
    }
    ADD_FAILURE() << "no " << name_of(kind);
    return graph.nodes.front();
  }
};

TEST(Nics, TransferAloneTakesItsDuration) {
  TwoNodes two;
  Nics nics(two.graph);
  Node& transfer = two.first(NodeKind::kSendActivation);
  EXPECT_EQ(nics.end_ns(transfer, 100), 100 + transfer.duration_ns);
}

TEST(Nics, TransferSharesWithARound) {
  TwoNodes two;
  Node& round = two.first(NodeKind::kPullInter);
  Node& transfer = two.first(NodeKind::kSendGradient);
  round.duration_ns = 1000;
  transfer.duration_ns = 300;
  const link::Volume& volume = two.graph.links->pull.nics[0];
  ASSERT_EQ(volume.sent[1], two.graph.links->pull.busiest[0].inter_elements)
      << "rank 0 pulls the embedding, half of which rank 1 owns";
  Nics nics(two.graph);
  EXPECT_EQ(nics.end_ns(round, 0), 1000);
  EXPECT_EQ(nics.end_ns(transfer, 200), 200 + 2 * 300);
  Node next = round;
  EXPECT_EQ(nics.end_ns(next, 1000), 1000 + 300 + 1000) << "the round still owes what the transfer took";
}

TEST(Nics, RoundStartsBehindTransfersUnderWay) {
  TwoNodes two;
  Node& round = two.first(NodeKind::kPullInter);
  Node& transfer = two.first(NodeKind::kSendGradient);
  round.duration_ns = 1000;
  transfer.duration_ns = 300;
  Nics nics(two.graph);
  EXPECT_EQ(nics.end_ns(transfer, 0), 300);
  EXPECT_EQ(nics.end_ns(round, 100), 300 + 1000);
}

TEST(Nics, NothingInsideANodeIsSlowed) {
  TwoNodes two;
  two.cost = testing::small_cost(two.model, {.gpus_per_node = 2});
  two.graph = build(testing::plan_from_text("<1,2,1>", {"30, 40"}, 2), two.table, two.cost, 2);
  for (const Node& node : two.graph.nodes) EXPECT_EQ(node.end_ns, node.start_ns + node.duration_ns);
}

// Elements of a round that leave a group of nodes travel
// over the links between groups, in parallel to the others.
TEST(Nics, PullsWaitForTheLinksBetweenGroupsOfNodes) {
  const model::Outline outline = model::outline_of_12_heads(4);
  const model::ParameterTable table = model::parameter_table(outline);
  const strategy::StepPlan plan = testing::plan_from_text("8x<1,1,1>", {"30"}, 8);
  cost::CostModel::Options options = testing::small_cost(outline, {.gpus_per_node = 2}).options();
  const StepGraph alike = build(plan, table, cost::CostModel(options), 8);
  options.topology = {2, 1, {4}};
  const auto graph_with = [&](const cost::LinkTimes& between) {
    options.beyond = {between};
    return build(plan, table, cost::CostModel(options), 8);
  };
  const StepGraph fast = graph_with(options.inter);
  const StepGraph slow = graph_with({options.inter.latency_ns, options.inter.bytes_per_s / 100});
  ASSERT_EQ(alike.nodes.size(), slow.nodes.size());
  for (size_t node = 0; node < alike.nodes.size(); ++node) {
    EXPECT_EQ(fast.nodes[node].duration_ns, alike.nodes[node].duration_ns);
    if (slow.nodes[node].kind != NodeKind::kPullInter) continue;
    const LinkPlan::Busiest& busiest =
        slow.links->pull.busiest[static_cast<size_t>(slow.nodes[node].round())];
    ASSERT_EQ(busiest.beyond_elements.size(), 1u);
    EXPECT_LE(busiest.beyond_elements.front(), busiest.inter_elements);
    EXPECT_EQ(slow.nodes[node].duration_ns, options.beyond.front().of_bytes(busiest.beyond_elements.front() *
                                                                            options.memory.element_bytes));
  }
}

TEST(Nics, SharedAdapterMovesWhatItsRanksMove) {
  const model::Outline outline = model::outline_of_12_heads(4);
  const model::ParameterTable table = model::parameter_table(outline);
  const auto strategy = strategy::parse_strategy("<4,1,1>", 8);
  const LinkPlan own = link_plan(table, strategy, {8, {4, 1}});
  const LinkPlan shared = link_plan(table, strategy, {8, {4, 2}});
  const LinkPlan one = link_plan(table, strategy, {8, {4, 4}});
  for (size_t round = 0; round < own.pull.busiest.size(); ++round) {
    ASSERT_EQ(own.pull.nics[round].sent.size(), 8u);
    ASSERT_EQ(shared.pull.nics[round].sent.size(), 4u);
    ASSERT_EQ(one.pull.nics[round].sent.size(), 2u);
    for (size_t nic = 0; nic < 4; ++nic) {
      EXPECT_EQ(shared.pull.nics[round].received[nic],
                own.pull.nics[round].received[2 * nic] + own.pull.nics[round].received[2 * nic + 1]);
    }
    EXPECT_GT(one.pull.busiest[round].inter_elements, own.pull.busiest[round].inter_elements);
    EXPECT_EQ(one.pull.busiest[round].intra_elements, own.pull.busiest[round].intra_elements);
  }
}

TEST(Nics, ClockOnlyAddsToDurations) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto random = testing::random_case(seed, {.max_lanes = 2});
    const StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    for (const Node& node : graph.nodes) {
      ASSERT_GE(node.end_ns, node.start_ns + node.duration_ns) << "seed " << seed << ": " << label(node);
    }
  }
}

}  // namespace
}  // namespace sluice::graph
