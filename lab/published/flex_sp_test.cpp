#include "published/flex_sp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "cost/analytic.h"
#include "cost/test_model.h"
#include "model/test_outline.h"
#include "strategy/pass.h"

namespace sluice::published {
namespace {

cost::CostModel small_machine(int64_t device_bytes, int gpus_per_node = 4) {
  const std::vector<int> degrees = {1, 2, 4};
  cost::CostModel::Options options = cost::analytic_options(model::test_outline_of_8_heads(), {},
                                                            {.device_bytes = device_bytes}, degrees, 4);
  options.topology = gpus_per_node;
  return cost::CostModel(std::move(options));
}

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
int64_t brute_force_ns(const std::vector<int64_t>& lengths, int largest, const FlexSpCost& cost) {
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  std::vector<int> sizes;
  for_each_sizes(cost.ranks(), largest, sizes, [&](const std::vector<int>& groups) {
    std::vector<size_t> group_of(lengths.size(), 0);
    for (bool more = true; more;) {
      std::vector<cost::Work> loads(groups.size());
      for (size_t s = 0; s < lengths.size(); ++s) {
        loads[group_of[s]] += cost.work_of(lengths[s]);
      }
      int64_t slowest_ns = 0;
      for (size_t g = 0; g < groups.size(); ++g) {
        if (loads[g].tokens == 0) continue;
        const bool fits = loads[g].tokens <= cost.capacity_tokens(groups[g]) * groups[g];
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
  const cost::CostModel cost = small_machine(128'000'000);
  const FlexSpCost groups({.scheme = {.cp = 4, .fsdp = 4}}, cost, 4);
  base::Rng rng(5);
  double worst = 1;
  double total = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < 6; ++i) lengths.push_back(rng.between(20, i == 0 ? 4000 : 900));
    const auto found = best_groups(lengths, groups);
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

// Eight ranks that share all parameters.
struct Machine {
  cost::CostModel cost;
  GroupProgram program{.scheme = {.cp = 8, .fsdp = 8}};
};

std::vector<int64_t> two_micro_batches(const Machine& machine) {
  std::vector<int64_t> lengths = {2 * capacity_tokens(machine.program, 1, machine.cost, 8)};
  const int64_t tokens = 12 * capacity_tokens(machine.program, 1, machine.cost, 8);
  for (int64_t sum = lengths[0]; sum < tokens; sum += 300) lengths.push_back(300);
  return lengths;
}

TEST(FlexSp, MicroBatchesArePassesOfGroupsThatExchangeHeads) {
  // Between nodes of one rank exchanges are dear.
  const Machine machine{small_machine(128'000'000, 1)};
  const std::vector<int64_t> lengths = two_micro_batches(machine);
  const strategy::StepPlan plan = flex_sp_plan(machine.program, lengths, machine.cost, 8);
  EXPECT_NO_THROW(strategy::validate(plan, 8));
  const strategy::PipelinePlan& pipeline = plan.pipelines.front();
  const std::vector<strategy::Pass> passes = strategy::passes(pipeline);
  EXPECT_GE(passes.size(), 2u);
  std::set<int> widths;
  for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
    widths.insert(micro_batch.lanes);
    if (micro_batch.lanes > 1) {
      EXPECT_EQ(micro_batch.exchange, strategy::Exchange::kHeads);
    }
  }
  EXPECT_GT(widths.size(), 1u) << "groups of different sizes";
  // Its own estimate of a micro-batch is the clock's.
  const FlexSpCost cost(machine.program, machine.cost, 8);
  int64_t alone_ns = 0;
  for (size_t p = 0; p < passes.size(); ++p) {
    FlexSpGroups groups;
    for (const int u : passes[p].micro_batches) {
      const strategy::PipelineMicroBatch& micro_batch = pipeline.micro_batches[static_cast<size_t>(u)];
      groups.sizes.push_back(micro_batch.lanes);
      groups.sequences.emplace_back();
      for (const strategy::MicroBatchSequence& s : micro_batch.sequences)
        groups.sequences.back().push_back(s.sequence);
    }
    alone_ns += cost.micro_batch_ns(groups, lengths);
  }
  EXPECT_NEAR(static_cast<double>(plan.estimated_ns), static_cast<double>(alone_ns),
              0.05 * static_cast<double>(alone_ns));
}

// A solver is shown what the search found; its groups count only where the micro-batch ends sooner with them.
TEST(FlexSp, GroupsMayBeImprovedAndNeverGetWorse) {
  const Machine machine{small_machine(128'000'000, 1)};
  const std::vector<int64_t> lengths = two_micro_batches(machine);
  const auto plan_with = [&](const ImproveGroups& improve) {
    return flex_sp_plan(machine.program, lengths, machine.cost, 8, improve);
  };
  const int64_t searched_ns = plan_with(nullptr).estimated_ns;
  int asked = 0;
  const auto slower = [&](std::span<const int64_t> own, const FlexSpCost& cost, const FlexSpGroups& found) {
    ++asked;
    EXPECT_TRUE(std::ranges::is_sorted(own, std::greater()));
    EXPECT_EQ(best_groups(own, cost)->time_ns, found.time_ns);
    const std::vector<int> sizes(8, 1);
    return assign_to_groups(own, sizes, cost).value_or(found);
  };
  EXPECT_LE(plan_with(slower).estimated_ns, searched_ns);
  EXPECT_GE(asked, 2) << "a micro-batch was kept from it";
  // The search itself, run once more from the sizes that it found, makes no plan slower.
  const auto again = [](std::span<const int64_t> own, const FlexSpCost& cost, const FlexSpGroups& found) {
    return groups_near(own, found.sizes, cost).value_or(found);
  };
  EXPECT_LE(plan_with(again).estimated_ns, searched_ns);
}

TEST(FlexSp, SequenceThatNoGroupHoldsIsInfeasible) {
  const Machine machine{small_machine(128'000'000)};
  EXPECT_THROW(flex_sp_plan(machine.program, std::vector<int64_t>{100'000'000}, machine.cost, 8),
               base::InfeasibleError);
}

}  // namespace
}  // namespace sluice::published
