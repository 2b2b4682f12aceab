#include "graph/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "graph/test_graphs.h"

namespace sluice::graph {
namespace {

TEST(Memory, PeakOverTimeIsThePredictedPeak) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto random = testing::random_case(
        seed, {.max_lanes = 2, .max_fsdp = seed % 2 == 0 ? 2 : 1, .freezes = seed % 3 == 0});
    const StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    std::vector<int> ranks(static_cast<size_t>(graph.world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::vector<RankMemory> predicted = predicted_memory(graph, random.cost);
    const auto uses = memory_over_time(graph, random.cost, ranks);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto fullest = std::ranges::max_element(uses[rank], {}, &MemoryUse::bytes);
      ASSERT_EQ(fullest->bytes, predicted[rank].peak_bytes) << "seed " << seed << " rank " << rank;
      ASSERT_EQ(uses[rank].front().bytes, predicted[rank].fixed_bytes);
      ASSERT_EQ(uses[rank].back().bytes, predicted[rank].fixed_bytes) << "everything is given back";
      ASSERT_TRUE(std::ranges::is_sorted(uses[rank], {}, &MemoryUse::time_ns));
    }
  }
}

// Muon: the update takes the rounds' exchanges and iterations longer, and holds their matrices.
TEST(Memory, AnUpdateOfWholeMatricesIsCounted) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto random = testing::random_case(seed, {.max_lanes = 2, .max_fsdp = 1});
    cost::CostModel::Options options = random.cost.options();
    options.newton_schulz_steps = 5;
    const cost::CostModel cost = random.cost.with(options);
    const StepGraph plain = build(random.plan, random.table, random.cost, random.world_size),
                    whole = build(random.plan, random.table, cost, random.world_size);
    const int64_t longer_ns = matrix_update_ns(*whole.links, cost);
    EXPECT_GT(longer_ns, 0);
    EXPECT_EQ(matrix_update_ns(*plain.links, random.cost), 0);
    const auto update_ns = [](const StepGraph& graph, int rank) {
      for (const Node& node : graph.nodes) {
        if (node.kind == NodeKind::kUpdate && node.members.front() == rank) return node.duration_ns;
      }
      return int64_t{-1};
    };
    const std::vector<RankMemory> before = predicted_memory(plain, random.cost),
                                  after = predicted_memory(whole, cost);
    int64_t most = 0;
    for (int rank = 0; rank < random.world_size; ++rank) {
      const auto at = static_cast<size_t>(rank);
      const int64_t held = matrix_update_bytes(*whole.links, options.memory, rank);
      EXPECT_EQ(update_ns(whole, rank), update_ns(plain, rank) + longer_ns);
      EXPECT_EQ(after[at].peak_bytes, std::max(before[at].peak_bytes, before[at].fixed_bytes + held));
      most = std::max(most, held);
    }
    EXPECT_GT(most, 0);
    EXPECT_GE(least_ns(*whole.links, cost), least_ns(*plain.links, random.cost) + longer_ns);
  }
}

}  // namespace
}  // namespace sluice::graph
