#include "published/partition.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace sluice::published {
namespace {

// Every item in every bin: the least that the fullest holds, or nothing.
std::optional<int64_t> brute_force(const std::vector<PartitionItem>& items, const PartitionOptions& options) {
  std::optional<int64_t> least;
  std::vector<size_t> choice(items.size(), 0);
  while (true) {
    std::vector<PartitionItem> held(static_cast<size_t>(options.bins));
    for (size_t i = 0; i < items.size(); ++i) {
      held[choice[i]].work += items[i].work;
      held[choice[i]].tokens += items[i].tokens;
    }
    int64_t most = 0;
    bool fits = true;
    for (const PartitionItem& bin : held) {
      most = std::max(most, bin.work);
      fits = fits && bin.tokens <= options.capacity_tokens;
    }
    if (fits && (!least || most < *least)) least = most;
    size_t i = 0;
    while (i < choice.size() && ++choice[i] == held.size()) choice[i++] = 0;
    if (i == choice.size()) return least;
  }
}

std::vector<PartitionItem> random_items(base::Rng& rng, int count, int64_t most_tokens) {
  std::vector<PartitionItem> items;
  for (int i = 0; i < count; ++i) {
    const int64_t tokens = rng.between(1, most_tokens);
    items.push_back({.work = tokens * tokens + 50 * tokens + 300, .tokens = tokens});
  }
  return items;
}

void expect_consistent(const Partition& result, const std::vector<PartitionItem>& items,
                       const PartitionOptions& options) {
  ASSERT_EQ(static_cast<int>(result.bins->size()), options.bins);
  std::vector<int> all;
  int64_t most = 0;
  for (const std::vector<int>& bin : *result.bins) {
    PartitionItem held;
    for (const int item : bin) {
      all.push_back(item);
      held.work += items[static_cast<size_t>(item)].work;
      held.tokens += items[static_cast<size_t>(item)].tokens;
    }
    EXPECT_LE(held.tokens, options.capacity_tokens);
    most = std::max(most, held.work);
  }
  EXPECT_EQ(result.largest_work, most);
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), items.size());
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int>(i));
}

TEST(Partition, EqualsBruteForceAndProvesIt) {
  int infeasible = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    base::Rng rng(seed, 31);
    const std::vector<PartitionItem> items = random_items(rng, static_cast<int>(rng.between(1, 8)), 100);
    const PartitionOptions options{.bins = static_cast<int>(rng.between(1, 4)),
                                   .capacity_tokens = rng.between(100, 300)};
    const std::optional<int64_t> best = brute_force(items, options);
    const Partition result = partition(items, options);
    ASSERT_TRUE(result.proved) << "seed " << seed;
    ASSERT_EQ(result.bins.has_value(), best.has_value()) << "seed " << seed;
    infeasible += best ? 0 : 1;
    if (!best) continue;
    expect_consistent(result, items, options);
    EXPECT_EQ(result.largest_work, *best) << "seed " << seed;
    EXPECT_EQ(result.lower_bound, *best);
    EXPECT_LE(partition_bound(items, options.bins), *best);
  }
  EXPECT_GT(infeasible, 10);
}

TEST(Partition, ToleranceStopsAtProvedNearness) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    base::Rng rng(seed, 32);
    const std::vector<PartitionItem> items = random_items(rng, 40, 1000);
    const PartitionOptions options{.bins = 6, .capacity_tokens = 5000, .tolerance_ppm = 1000};
    const Partition result = partition(items, options);
    ASSERT_TRUE(result.proved) << "seed " << seed;
    expect_consistent(result, items, options);
    EXPECT_LE(result.largest_work * 1000, result.lower_bound * 1001);
  }
}

TEST(Partition, WithoutNodesItIsGreedyAndSaysSo) {
  base::Rng rng(1, 33);
  const std::vector<PartitionItem> items = random_items(rng, 30, 1000);
  const PartitionOptions options{.bins = 4, .capacity_tokens = 100'000, .node_budget = 0};
  const Partition result = partition(items, options);
  EXPECT_FALSE(result.proved);
  expect_consistent(result, items, options);
  EXPECT_GE(result.largest_work, result.lower_bound);
  EXPECT_GE(result.largest_work, partition(items, {.bins = 4, .capacity_tokens = 100'000}).largest_work);
}

TEST(Partition, EdgeCases) {
  const Partition none = partition({}, {.bins = 2, .capacity_tokens = 10});
  EXPECT_TRUE(none.proved);
  EXPECT_EQ(none.largest_work, 0);
  const std::vector<PartitionItem> large = {{.work = 5, .tokens = 11}};
  EXPECT_FALSE(partition(large, {.bins = 2, .capacity_tokens = 10}).bins.has_value());
  const std::vector<PartitionItem> idle(3, {.work = 0, .tokens = 4});
  EXPECT_EQ(partition(idle, {.bins = 2, .capacity_tokens = 8}).largest_work, 0);
  const std::vector<PartitionItem> equal(5000, {.work = 3, .tokens = 1});
  const Partition even = partition(equal, {.bins = 5, .capacity_tokens = 1000});
  EXPECT_TRUE(even.proved);
  EXPECT_EQ(even.largest_work, 3000);
}

}  // namespace
}  // namespace sluice::published
