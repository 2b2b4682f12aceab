#include "graph/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
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

// A pipeline that multiplies 8-bit floats in the first layer: its first stage keeps that layer's codes, and
// all its cells expand rows.
TEST(Memory, WeightsAndRowsOf8BitFloatsAreCounted) {
  int64_t coded_ranks = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto random = testing::random_case(seed, {.max_lanes = 2, .max_fsdp = seed % 2 == 0 ? 2 : 1});
    StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    const std::vector<RankMemory> before = predicted_memory(graph, random.cost);
    strategy::Pipeline& first = graph.plan.pipelines.front().pipeline;
    first.device.low_precision = std::make_shared<const strategy::LowPrecisionGemms>(
        strategy::LowPrecisionGemms{base::GemmFormat::kFloat8, {0}});
    const std::vector<RankMemory> after = predicted_memory(graph, random.cost);
    const std::vector<strategy::Place> places = strategy::places(graph.plan.strategy(), graph.world_size);
    for (size_t rank = 0; rank < before.size(); ++rank) {
      const int64_t added = after[rank].fixed_bytes - before[rank].fixed_bytes;
      const bool codes =
          places[rank].pipeline == 0 && places[rank].stage == 0 && !graph.passes.front().empty();
      EXPECT_EQ(added > 0, codes) << "seed " << seed << " rank " << rank;
      EXPECT_GE(after[rank].peak_bytes - before[rank].peak_bytes, added);
      if (places[rank].pipeline != 0) {
        EXPECT_EQ(after[rank].peak_bytes, before[rank].peak_bytes);
      }
      coded_ranks += codes ? 1 : 0;
    }
  }
  EXPECT_GT(coded_ranks, 40);
}

}  // namespace
}  // namespace sluice::graph
