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

}  // namespace
}  // namespace sluice::graph
