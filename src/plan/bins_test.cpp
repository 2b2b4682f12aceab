#include "plan/bins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"

namespace sluice::plan {
namespace {

std::vector<PackItem> items_of(const std::vector<int64_t>& tokens) {
  std::vector<PackItem> items;
  for (const int64_t t : tokens)
    items.push_back({.sequence = static_cast<int>(items.size()), .tokens = t, .work_ns = t * t});
  return items;
}

std::vector<PackItem> random_items(base::Rng rng, int count) {
  std::vector<int64_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(rng.between(1, 100));
  return items_of(tokens);
}

int64_t tokens_of(const std::vector<PackItem>& items, const std::vector<int>& bin) {
  int64_t tokens = 0;
  for (const int item : bin) tokens += items[static_cast<size_t>(item)].tokens;
  return tokens;
}

int64_t largest_work(const std::vector<PackItem>& items, const Bins& bins) {
  int64_t most = 0;
  for (const std::vector<int>& bin : bins) {
    int64_t work = 0;
    for (const int item : bin) work += items[static_cast<size_t>(item)].work_ns;
    most = std::max(most, work);
  }
  return most;
}

// Every way to put the items into at most `bins` bins, by the fewest bins used and the least largest work.
struct BruteForce {
  int fewest = std::numeric_limits<int>::max();
  int64_t least_work = std::numeric_limits<int64_t>::max();

  BruteForce(const std::vector<PackItem>& items, int bins, int64_t capacity) {
    std::vector<size_t> choice(items.size(), 0);
    while (true) {
      Bins result(static_cast<size_t>(bins));
      for (size_t i = 0; i < items.size(); ++i) result[choice[i]].push_back(static_cast<int>(i));
      if (std::all_of(result.begin(), result.end(),
                      [&](const auto& bin) { return tokens_of(items, bin) <= capacity; })) {
        const auto used =
            std::count_if(result.begin(), result.end(), [](const auto& bin) { return !bin.empty(); });
        fewest = std::min(fewest, static_cast<int>(used));
        least_work = std::min(least_work, largest_work(items, result));
      }
      size_t i = 0;
      while (i < choice.size() && ++choice[i] == static_cast<size_t>(bins)) choice[i++] = 0;
      if (i == choice.size()) return;
    }
  }
};

void expect_each_once(const Bins& bins, size_t count) {
  std::vector<int> all;
  for (const std::vector<int>& bin : bins) all.insert(all.end(), bin.begin(), bin.end());
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), count);
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(all[i], static_cast<int>(i));
}

TEST(Bins, FirstFitDecreasingStaysCloseToTheFewestBins) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<PackItem> items = random_items(base::Rng(seed, 3), 6);
    const Bins bins = first_fit_decreasing(items, 100);
    expect_each_once(bins, items.size());
    for (const std::vector<int>& bin : bins) EXPECT_LE(tokens_of(items, bin), 100);
    const int fewest = BruteForce(items, 6, 100).fewest;
    EXPECT_LE(static_cast<int>(bins.size()) * 9, fewest * 11 + 6) << "seed " << seed;
  }
}

TEST(Bins, BalanceStaysCloseToTheLeastLargestWork) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<PackItem> items = random_items(base::Rng(seed, 4), 7);
    const std::optional<Bins> bins = balance(items, 3, 1000);
    ASSERT_TRUE(bins.has_value());
    expect_each_once(*bins, items.size());
    // Longest first is within 4/3 − 1/(3·bins) of the best (Graham, 1969).
    EXPECT_LE(largest_work(items, *bins) * 9, BruteForce(items, 3, 1000).least_work * 11) << "seed " << seed;
  }
}

TEST(Bins, BalanceKeepsTheCapacityOrGivesUp) {
  const std::vector<PackItem> items = items_of({60, 60, 60});
  EXPECT_FALSE(balance(items, 2, 100).has_value());
  EXPECT_TRUE(balance(items, 3, 100).has_value());
}

TEST(Bins, BalanceLeavesNoBinEmptyEvenWithoutWork) {
  std::vector<PackItem> items = items_of({5, 5, 5});
  for (PackItem& item : items) item.work_ns = 0;
  const std::optional<Bins> bins = balance(items, 3, 100);
  for (const std::vector<int>& bin : *bins) EXPECT_EQ(bin.size(), 1u);
}

TEST(Bins, EvenMicroBatchesAreTheRoot) {
  EXPECT_EQ(even_micro_batches(1000, 8, 4), 13);  // √(1000 · 3 / (2 · 8))
  EXPECT_EQ(even_micro_batches(1000, 0, 2), 22);
  EXPECT_EQ(even_micro_batches(1000, 8, 1), 1);
}

}  // namespace
}  // namespace sluice::plan
