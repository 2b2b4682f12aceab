#include "study/flexsp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "study/baseline_cost.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

// All sets of powers of two that sum to `ranks`, none above `largest`.
void for_each_sizes(int ranks, int largest, std::vector<int>& sizes,
                    const std::function<void(const std::vector<int>&)>& visit) {
  if (ranks == 0) return visit(sizes);
  for (int size = largest; size >= 1; size /= 2) {
    if (size > ranks) continue;
    sizes.push_back(size);
    for_each_sizes(ranks - size, size, sizes, visit);
    sizes.pop_back();
  }
}

// The least time over all sizes and all assignments.
int64_t brute_force_ns(const std::vector<int64_t>& lengths, int largest, const UlyssesGroupCost& cost) {
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  std::vector<int> sizes;
  for_each_sizes(cost.world_size(), largest, sizes, [&](const std::vector<int>& groups) {
    std::vector<size_t> group_of(lengths.size(), 0);
    for (bool more = true; more;) {
      std::vector<cost::Work> loads(groups.size());
      for (size_t s = 0; s < lengths.size(); ++s) {
        loads[group_of[s]] += {lengths[s], cost::Wide{lengths[s]} * lengths[s]};
      }
      int64_t slowest_ns = 0;
      for (size_t g = 0; g < groups.size(); ++g) {
        if (loads[g].tokens == 0) continue;
        const bool fits = loads[g].tokens <= cost.capacity_tokens() * groups[g];
        slowest_ns = fits ? std::max(slowest_ns, cost.time_ns(loads[g], groups[g])) : least_ns;
        if (!fits) break;
      }
      least_ns = std::min(least_ns, slowest_ns);
      more = false;
      for (size_t s = 0; s < lengths.size() && !more; ++s) {
        more = ++group_of[s] < groups.size();
        if (!more) group_of[s] = 0;
      }
    }
  });
  return least_ns;
}

TEST(FlexSp, LocalSearchComesCloseToTheBestOfAllGroups) {
  const SystemInputs inputs = test_inputs();
  const cost::CostModel cost = ulysses_cost(inputs.cost, {.world_size = 4});
  const UlyssesGroupCost groups(cost, 4);
  base::Rng rng(5);
  double worst = 1;
  double total = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < 6; ++i) lengths.push_back(rng.between(20, i == 0 ? 4000 : 900));
    const auto found = best_groups(lengths, 4, groups);
    ASSERT_TRUE(found);
    const double ratio =
        static_cast<double>(found->time_ns) / static_cast<double>(brute_force_ns(lengths, 4, groups));
    EXPECT_GE(ratio, 1.0);
    worst = std::max(worst, ratio);
    total += ratio;
  }
  EXPECT_LT(worst, 1.25);
  EXPECT_LT(total / 60, 1.04);
}

TEST(FlexSp, CutsHaveTheLeastLargestSum) {
  base::Rng rng(6);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < 7; ++i) lengths.push_back(rng.between(1, 50));
    std::ranges::sort(lengths, std::greater());
    const auto sum = [&](size_t begin, size_t end) {
      int64_t total = 0;
      for (size_t i = begin; i < end; ++i) total += lengths[i];
      return total;
    };
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t a = 1; a < 6; ++a) {
      for (size_t b = a + 1; b < 7; ++b) least = std::min(least, std::max({sum(0, a), sum(a, b), sum(b, 7)}));
    }
    const std::vector<size_t> ends = cut_evenly(lengths, 3);
    ASSERT_LE(ends.size(), 3u);
    ASSERT_EQ(ends.back(), lengths.size());
    int64_t largest = 0;
    size_t begin = 0;
    for (const size_t end : ends) {
      largest = std::max(largest, sum(begin, end));
      begin = end;
    }
    EXPECT_EQ(largest, least);
  }
}

TEST(FlexSp, MicroBatchesHoldTheBatchTogether) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_flexsp(inputs);
  std::vector<int64_t> lengths = test_lengths(3, inputs.context_length);
  const int64_t capacity = 8 * system->cost().max_len_tokens({}, 8);
  for (int64_t tokens = 0; tokens < 2 * capacity; tokens += 1500) lengths.push_back(1500);
  const auto sequences = test_sequences(lengths);
  const SystemStep step = system->step(1, sequences);
  const graph::StepGraph graph = expect_runs_all(step, sequences, system->cost(), inputs.world_size);
  EXPECT_GE(graph.makespan_ns, step.plan.estimated_ns);
  EXPECT_FALSE(step.earlier.empty());
  int64_t earlier_ns = 0;
  for (const strategy::StepPlan& plan : step.earlier) earlier_ns += plan.estimated_ns;
  EXPECT_GT(earlier_ns, 0);
  EXPECT_GE(step.before_ns, earlier_ns);
  EXPECT_EQ(step.switch_ns, 0);
}

TEST(FlexSp, ContextThatNothingHoldsIsInfeasible) {
  EXPECT_THROW(make_flexsp(test_inputs(100'000'000)), base::InfeasibleError);
}

}  // namespace
}  // namespace sluice::study
