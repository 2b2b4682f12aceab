#include "published/static_strategy.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "plan/planner.h"
#include "plan/test_models.h"

namespace sluice::published {
namespace {

std::vector<int64_t> random_lengths(uint64_t seed, int64_t longest) {
  base::Rng rng(seed, 21);
  std::vector<int64_t> lengths = {longest};
  for (int i = 0; i < 40; ++i) lengths.push_back(rng.between(10, 600));
  return lengths;
}

TEST(StaticStrategy, PlansAreValidAndNoFasterThanTheirBound) {
  const cost::CostModel cost = plan::test_cost();
  for (const strategy::Scheme scheme :
       {strategy::Scheme{}, strategy::Scheme{.tp = 2}, strategy::Scheme{.tp = 2, .pp = 2}}) {
    const StaticStrategy choice{.scheme = scheme, .pipelines = 8 / scheme.ranks(), .micro_batch_tokens = 900};
    const std::vector<int64_t> lengths = random_lengths(3, 1200);
    const strategy::StepPlan plan = static_plan(choice, lengths, cost, 8);
    strategy::validate(plan, 8);
    const plan::Planner planner(
        {.world_size = 8,
         .candidates = {strategy::parse_strategy(base::text(choice.pipelines, "x", to_text(scheme)), 8)}},
        cost);
    EXPECT_GE(plan.estimated_ns, planner.plan(0, plan.sequences).lower_bound_ns) << to_text(scheme);
  }
}

TEST(StaticStrategy, BestHoldsTheContextAndBeatsTheOthers) {
  const cost::CostModel cost = plan::test_cost();
  const int64_t context = cost::MemoryCost(cost, {}).max_len_tokens(8) + 200;
  plan::PlannerOptions options{.world_size = 8, .context_length = context};
  for (uint64_t seed = 0; seed < 3; ++seed) options.sample_batches.push_back(random_lengths(seed, context));
  const StaticStrategy best = best_static(options, cost);
  EXPECT_GE(cost::MemoryCost(cost, best.scheme).max_len_tokens(8), context);
  for (const strategy::Scheme scheme : {strategy::Scheme{.tp = 4}, strategy::Scheme{.tp = 2, .pp = 4}}) {
    const int64_t tokens = cost::MemoryCost(cost, scheme).max_len_tokens(8);
    int64_t total_ns = 0;
    for (const auto& batch : options.sample_batches) {
      total_ns +=
          static_plan({.scheme = scheme, .pipelines = 8 / scheme.ranks(), .micro_batch_tokens = tokens},
                      batch, cost, 8)
              .estimated_ns;
    }
    EXPECT_GE(total_ns / 3, best.mean_ns);
  }
  options.context_length = 100'000'000;
  EXPECT_THROW(best_static(options, cost), base::InfeasibleError);
}

TEST(StaticStrategy, TurnsGivePipelinesAsManyMicroBatchesGiveOrTakeOne) {
  const cost::CostModel cost = plan::test_cost();
  const StaticStrategy choice{
      .scheme = {.tp = 2}, .pipelines = 3, .micro_batch_tokens = 1300, .dealing = Dealing::kTurns};
  const strategy::StepPlan plan = static_plan(choice, random_lengths(4, 1200), cost, 8);
  strategy::validate(plan, 8);
  size_t fewest = plan.pipelines[0].micro_batches.size();
  size_t most = fewest;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    fewest = std::min(fewest, pipeline.micro_batches.size());
    most = std::max(most, pipeline.micro_batches.size());
  }
  EXPECT_LE(most - fewest, 1u);
  EXPECT_EQ(to_text(choice), "DP3 TP2");
}

TEST(StaticStrategy, EstimateIsThePlansButForTokensOfUnevenLanes) {
  const cost::CostModel cost = plan::test_cost();
  for (const strategy::Scheme scheme : {strategy::Scheme{}, strategy::Scheme{.tp = 2, .pp = 2},
                                        strategy::Scheme{.cp = 4}, strategy::Scheme{.pp = 2, .cp = 2}}) {
    const StaticStrategy choice{.scheme = scheme, .pipelines = 8 / scheme.ranks(), .micro_batch_tokens = 900};
    const std::vector<int64_t> lengths = random_lengths(5, 1200);
    const auto planned = static_cast<double>(static_plan(choice, lengths, cost, 8).estimated_ns);
    const auto estimate = static_cast<double>(static_estimate_ns(choice, lengths, cost, 8));
    if (scheme.cp == 1) {
      EXPECT_EQ(estimate, planned) << to_text(scheme);
    }
    EXPECT_GE(estimate, planned * 0.999) << to_text(scheme);
    EXPECT_LE(estimate, planned * 1.02) << to_text(scheme);
  }
}

}  // namespace
}  // namespace sluice::published
