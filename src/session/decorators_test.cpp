#include "session/decorators.h"

#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "model/outline.h"
#include "session/low_precision_gemms.h"
#include "session/placed_experts.h"

namespace sluice::session {
namespace {

constexpr int kFourRanks = 4;

// Four lanes that divide eight experts, and four that do not.
plan::Planner planner_with_experts() {
  model::Outline outline = model::named_outline("llama-7b");
  outline.layers = 2;
  outline.experts = {.count = 8, .per_token = 2, .hidden = 1024};
  const cost::AnalyticMemory memory{.device_bytes = int64_t{80} << 30, .element_bytes = 2};
  const std::vector<int> degrees = {1};
  plan::PlannerOptions options{.world_size = kFourRanks};
  for (const char* candidate : {"<1,1,4,4,4>", "<1,1,4,4>"})
    options.candidates.push_back(strategy::parse_strategy(candidate, kFourRanks));
  return {std::move(options), cost::CostModel(cost::analytic_options(outline, {}, memory, degrees, 8))};
}

TEST(Decorators, OfCandidatesLeavePrices) {
  const plan::Planner planner = planner_with_experts();
  const std::vector<strategy::Device> devices(kFourRanks, {.slowdown_percent = 150});
  const plan::Planner slower = decorated(planner, on_devices(devices));
  EXPECT_EQ(slower.options().devices, devices);
  EXPECT_EQ(slower.cost().stage_times({}, 0), planner.cost().stage_times({}, 0));
}

TEST(Decorators, OfPricesLeaveCandidatesAndConditions) {
  const plan::Planner planner = planner_with_experts();
  const PriceDecorator twice{[](cost::CostModel::Options& options) { options.update_ps_per_element = 2000; }};
  const cost::CostModel before = planner.cost().under({.recompute_permille = 500});
  const cost::CostModel after = decorated(before, twice);
  EXPECT_EQ(after.update_ns(1'000'000), 2'000'000);
  EXPECT_EQ(after.policy(), before.policy());
}

TEST(Decorators, PlacedExpertsGiveTheBusiestLaneItsLoadWhereExpertsAreDivided) {
  const plan::Planner planner = planner_with_experts();
  // One expert takes most; its lane is loaded beyond the mean wherever it lies.
  const std::vector<plan::ExpertUse> use(2, {.assignments = {80, 1, 1, 1, 1, 1, 1, 1}, .coactivations = {}});
  const PlacedExperts placed = expert_placement(planner, use);
  const plan::Planner own = decorated(planner, placed.candidates, placed.prices);
  const auto& candidates = own.options().candidates;
  ASSERT_EQ(candidates.size(), 2U);
  EXPECT_NE(candidates[0].pipelines[0].placement, nullptr);
  EXPECT_EQ(candidates[1].pipelines[0].placement, nullptr);
  const strategy::Scheme& divided = candidates[0].pipelines[0].scheme;
  EXPECT_GT(own.cost().expert_imbalance_percent(divided), planner.cost().expert_imbalance_percent(divided));
  EXPECT_EQ(own.cost().options().expert_imbalance_percent.size(), 1U);
}

}  // namespace
}  // namespace sluice::session
