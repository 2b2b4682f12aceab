#include "plan/propose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "cost/memory_cost.h"
#include "model/test_outline.h"
#include "plan/judged_mix.h"
#include "plan/mix.h"
#include "plan/planner.h"
#include "plan/search.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

std::vector<std::vector<int64_t>> samples(int64_t longest) {
  std::vector<std::vector<int64_t>> batches;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    base::Rng rng(seed, 13);
    std::vector<int64_t> batch;
    for (int i = 0; i < 20; ++i) batch.push_back(rng.between(10, 400));
    if (seed % 2 == 0) batch.push_back(longest);
    batches.push_back(batch);
  }
  return batches;
}

std::vector<std::string> texts_of(const std::vector<strategy::Strategy>& strategies) {
  std::vector<std::string> texts;
  for (const strategy::Strategy& strategy : strategies) texts.push_back(to_text(strategy));
  return texts;
}

TEST(Proposal, OneHoldsTheContextAndAllArePlannable) {
  const cost::CostModel cost = test_cost();
  const int64_t context = cost::MemoryCost(cost, {}).max_len_tokens(4) + 500;  // not on <1,1,1>
  const PlannerOptions options{
      .world_size = 4, .context_length = context, .sample_batches = samples(context)};
  const std::vector<strategy::Strategy> proposed = strategies_of(propose(options, cost).or_throw());
  ASSERT_LE(proposed.size(), 8u);
  EXPECT_EQ(texts_of(proposed), texts_of(strategies_of(propose(options, cost).or_throw())));
  const Planner planner({.world_size = 4, .candidates = proposed}, cost);
  EXPECT_GE(planner.max_len_tokens(), context);
  const Planner first({.world_size = 4, .candidates = {proposed[0]}}, cost);
  EXPECT_GE(first.max_len_tokens(), context);
}

TEST(Proposal, ComparesStrategiesOfVeryManyRanksByCoarsePlans) {
  const PlannerOptions few = for_comparing({.world_size = kMostThoroughRanks});
  EXPECT_EQ(few.effort, Effort::kFull);
  EXPECT_TRUE(few.seeds.has(Seed::kHalves) && few.seeds.has(Seed::kFineEnds));
  const PlannerOptions many = for_comparing({.world_size = kMostThoroughRanks + 1});
  EXPECT_EQ(many.effort, Effort::kQuick);
  for (const Seed seed : {Seed::kStacks, Seed::kHalves, Seed::kLongFirst, Seed::kMorePasses, Seed::kFineEnds})
    EXPECT_FALSE(many.seeds.has(seed));
  const cost::CostModel cost = test_cost();
  const PlannerOptions options;
  for (const int ranks : {kMostThoroughRanks, kMostThoroughRanks + 1}) {
    const JudgingInputs inputs(options, ranks, {SchemeCost({}, cost, ranks)}, samples(400), cost);
    EXPECT_EQ(inputs.coarse, ranks > kMostThoroughRanks);
  }
}

// On 32 lanes. More lanes differ less.
TEST(Proposal, CoarsePlansEndWithinAnEighthOfOthers) {
  const cost::CostModel cost = test_cost();
  for (const char* text : {"1x<1,1,32,32>", "2x<1,1,8,8> + 1x<4,2,2>", "32x<1,1,1>"}) {
    const std::vector<strategy::Strategy> strategies = {strategy::parse_strategy(text, 32)};
    const SchemeCosts schemes(strategies, cost, 32);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      base::Rng rng(seed, 21);
      std::vector<int64_t> lengths;
      for (int i = 0; i < 300; ++i) lengths.push_back(rng.between(10, i % 30 == 0 ? 2000 : 300));
      const SortedBatch batch(lengths);
      CandidateSearch fine(strategies.front(), schemes, batch);
      CandidateSearch coarse(strategies.front(), schemes, batch, kCoarseSeeds);
      fine.run(Effort::kQuick);
      coarse.run(Effort::kQuick);
      EXPECT_LE(coarse.end_ns(), fine.end_ns() + fine.end_ns() / 8) << text << " " << seed;
      EXPECT_GE(coarse.end_ns(), *coarse.lower_bound_ns()) << text << " " << seed;
    }
  }
}

TEST(Proposal, ContextThatNothingHoldsIsInfeasible) {
  const cost::CostModel cost = test_cost();
  const auto proposed =
      propose({.world_size = 2, .context_length = 10'000'000, .sample_batches = samples(100)}, cost);
  ASSERT_FALSE(proposed);
  const std::string& why = proposed.none().why;
  EXPECT_NE(why.find("context_length 10000000"), std::string::npos) << why;
  EXPECT_NE(why.find("the longest that fits is "), std::string::npos) << why;
}

// Every mix of usable schemes, ranks left idle or not.
void enumerate(const std::vector<SchemeCost>& schemes, int ranks, Mix mix, std::vector<Mix>& all) {
  if (mix.size() == schemes.size()) {
    if (max_len_tokens(mix, schemes) > 0) all.push_back(mix);
    return;
  }
  const int each = schemes[mix.size()].scheme().ranks();
  mix.push_back(0);
  for (; mix.back() * each <= ranks; ++mix.back()) {
    enumerate(schemes, ranks - mix.back() * each, mix, all);
  }
}

int64_t planned_ns(const strategy::Strategy& strategy, const std::vector<int64_t>& batch, int ranks,
                   const cost::CostModel& cost) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : batch) sequences.push_back({.length_tokens = length});
  const Planner planner({.world_size = ranks, .candidates = {strategy}, .effort = Effort::kQuick}, cost);
  const auto plan = planner.try_plan(0, sequences);
  return plan ? plan->estimated_ns : std::numeric_limits<int64_t>::max();
}

// With as many strategies as batches, brute force is each batch's best over every strategy there is.
TEST(Proposal, IsNearTheBestOfAllStrategies) {
  const int ranks = 8;
  const cost::CostModel cost = test_cost();
  const std::vector<SchemeCost> schemes = usable_schemes(cost, ranks, 1);
  const auto batches = samples(schemes.back().max_len_tokens() + 200);
  std::vector<Mix> all;
  enumerate(schemes, ranks, {}, all);
  ASSERT_GT(all.size(), 50u);
  const std::vector<Proposal> proposed =
      propose({.world_size = ranks, .context_length = 1000, .sample_batches = batches}, cost).or_throw();
  int64_t ours_ns = 0, best_ns = 0;
  for (const std::vector<int64_t>& batch : batches) {
    int64_t ours = std::numeric_limits<int64_t>::max(), best = ours;
    for (const Proposal& proposal : proposed) {
      ours = std::min(ours, planned_ns(proposal.strategy, batch, ranks, cost));
    }
    for (const Mix& mix : all) {
      best = std::min(best, planned_ns(strategy_of(mix, schemes, ranks), batch, ranks, cost));
    }
    ours_ns += ours;
    best_ns += best;
  }
  EXPECT_LT(static_cast<double>(ours_ns) / static_cast<double>(best_ns), 1.02);
}

TEST(Proposal, FrequenciesAddUpAndTimesArePlans) {
  const cost::CostModel cost = test_cost();
  const auto batches = samples(cost::MemoryCost(cost, {}).max_len_tokens(4) + 500);
  const std::vector<Proposal> proposed =
      propose({.world_size = 4, .context_length = 1000, .sample_batches = batches}, cost).or_throw();
  double sum = 0;
  for (const Proposal& proposal : proposed) {
    sum += proposal.frequency;
    EXPECT_GT(proposal.mean_estimated_ns, 0);
    int64_t longest = 0;
    for (const strategy::Pipeline& pipeline : proposal.strategy.pipelines) {
      longest = std::max(longest, cost::MemoryCost(cost, pipeline.scheme).max_len_tokens(4));
    }
    EXPECT_EQ(proposal.max_len_tokens, longest);
    EXPECT_EQ(proposal.longest.most > 0, proposal.frequency > 0);
    EXPECT_LE(proposal.longest.least, proposal.longest.most);
    EXPECT_LE(proposal.longest.most, longest);
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
}

TEST(Proposal, KeepsToTheNumberOfStrategies) {
  const cost::CostModel cost = test_cost();
  const int64_t context = cost::MemoryCost(cost, {}).max_len_tokens(8) + 500;
  const std::vector<Proposal> proposed = propose({.world_size = 8,
                                                  .context_length = context,
                                                  .sample_batches = samples(context),
                                                  .max_strategies = 1},
                                                 cost)
                                             .or_throw();
  ASSERT_EQ(proposed.size(), 1u);
  EXPECT_GE(proposed[0].max_len_tokens, context);
  EXPECT_EQ(proposed[0].frequency, 1.0);
}

bool shares_all(const strategy::Strategy& strategy) {
  const strategy::Scheme& scheme = strategy.pipelines.front().scheme;
  return strategy.pipelines.size() == 1 && scheme.tp * scheme.fsdp == 8;
}

// A step overhead for strategies of one pipeline whose lanes all share, or for all others.
class AsLongAsTheSchedule : public StepOverhead {
 public:
  explicit AsLongAsTheSchedule(bool shared) : shared_(shared) {}
  int64_t of_plan_ns(const strategy::StepPlan& plan, const cost::CostModel& /*cost*/,
                     int /*ranks*/) const override {
    return shares_all(plan.strategy()) == shared_ ? plan.estimated_ns : 0;
  }
  int64_t least_ns(const strategy::Strategy& /*strategy*/, const cost::CostModel& /*cost*/,
                   int /*ranks*/) const override {
    return 0;
  }

 private:
  bool shared_;
};

// Strategies that pull and push as long as they compute are proposed where those that pull nothing are longer
// still, and not otherwise.
TEST(Proposal, IsJudgedByStepsNotBySchedules) {
  const cost::CostModel cost = test_cost();
  PlannerOptions options{
      .world_size = 8, .context_length = 1000, .sample_batches = samples(1000), .max_cp = 8, .max_fsdp = 8};
  for (const bool shared_pull : {false, true}) {
    options.step_overhead = std::make_shared<AsLongAsTheSchedule>(shared_pull);
    const std::vector<strategy::Strategy> proposed = strategies_of(propose(options, cost).or_throw());
    EXPECT_EQ(std::ranges::all_of(proposed, shares_all), !shared_pull);
    EXPECT_EQ(std::ranges::any_of(proposed, shares_all), !shared_pull);
  }
}

// Counts the plans whose step is asked for, of strategies that gather nothing and of others.
class CountsPlans : public StepOverhead {
 public:
  int64_t of_plan_ns(const strategy::StepPlan& plan, const cost::CostModel& /*cost*/,
                     int /*ranks*/) const override {
    const bool gathers = std::ranges::any_of(
        plan.pipelines, [](const auto& pipeline) { return pipeline.pipeline.scheme.fsdp > 1; });
    ++(gathers ? gathering : others);
    return 0;
  }
  int64_t least_ns(const strategy::Strategy& /*strategy*/, const cost::CostModel& /*cost*/,
                   int /*ranks*/) const override {
    ++bounds;
    return 0;
  }

  mutable int bounds = 0;
  mutable int gathering = 0;
  mutable int others = 0;
};

// One plan suffices to see that a mix loses, and the step beside a losing schedule is not timed.
TEST(JudgedMix, IsPlannedUntilItLoses) {
  const cost::CostModel cost = test_cost();
  const auto plans = std::make_shared<CountsPlans>();
  const PlannerOptions options{.world_size = 8, .step_overhead = plans};
  const JudgingInputs inputs(options, 8, {SchemeCost({}, cost, 8)}, samples(400), cost);
  const std::vector<int64_t> unlimited_ns(inputs.batches.size(), cost::kLongestNs);
  JudgedMix probed({8}, inputs), held({8}, inputs);
  probed.probe(unlimited_ns, {}, {});
  held.probe_held(unlimited_ns, {});
  EXPECT_EQ(probed.planned_batches(), 3);
  EXPECT_EQ(held.planned_batches(), 3);
  EXPECT_EQ(plans->others, 6);
  const LosingTimes all_lose{.steps_ns = std::vector<int64_t>(unlimited_ns.size(), 1), .total_ns = 1};
  JudgedMix losing({8}, inputs), losing_held({8}, inputs);
  losing.probe(unlimited_ns, {}, all_lose);
  losing_held.probe_held(unlimited_ns, all_lose);
  EXPECT_EQ(losing.planned_batches(), 1);
  EXPECT_EQ(losing_held.planned_batches(), 1);
  EXPECT_TRUE(losing.probed() && losing_held.probed());
  EXPECT_EQ(plans->others, 6);
}

// A second proposal plans only strategies that gather again, and proposes the same.
TEST(Proposal, TakesKnownStepsOfStrategiesThatGatherNothing) {
  const cost::CostModel cost = test_cost();
  const auto plans = std::make_shared<CountsPlans>();
  PlannerOptions options{.world_size = 8,
                         .step_overhead = plans,
                         .context_length = 1000,
                         .sample_batches = samples(1000),
                         .max_cp = 8,
                         .max_fsdp = 8};
  const std::vector<strategy::Strategy> alone = strategies_of(propose(options, cost).or_throw());
  const CountsPlans once = *plans;
  ASSERT_GT(once.others, 0);
  ASSERT_GT(once.gathering, 0);
  options.known_steps = std::make_shared<KnownSteps>();
  EXPECT_EQ(strategies_of(propose(options, cost).or_throw()), alone);
  const int bounds = plans->bounds;
  EXPECT_LT(bounds, 2 * once.bounds) << "of strategies that are bounded more than once";
  EXPECT_EQ(strategies_of(propose(options, cost).or_throw()), alone);
  EXPECT_EQ(plans->bounds, bounds);
  EXPECT_EQ(plans->others, 2 * once.others);
  EXPECT_EQ(plans->gathering, 3 * once.gathering);
}

// A policy keeps fewer rows, so a step that is known under another one is planned anew.
TEST(KnownSteps, AreThoseOfOnePolicyAndBatch) {
  const strategy::Strategy strategy = strategy::parse_strategy("2x<1,1,1>", 2);
  KnownSteps steps;
  int made = 0;
  const auto make = [&] { return QuickStep{.end_ns = ++made}; };
  EXPECT_EQ(steps.step(strategy, {}, 0, make).end_ns, 1);
  EXPECT_EQ(steps.step(strategy, {}, 1, make).end_ns, 2);
  EXPECT_EQ(steps.step(strategy, {.recompute_permille = 500}, 0, make).end_ns, 3);
  EXPECT_EQ(steps.step(strategy::parse_strategy("1x<1,2,1>", 2), {}, 0, make).end_ns, 4);
  EXPECT_EQ(steps.step(strategy, {}, 0, make).end_ns, 1);
}

TEST(KnownSteps, HaveOneStepOverhead) {
  KnownSteps steps;
  const auto make = [] { return std::make_shared<CountsPlans>(); };
  const auto first = steps.step_overhead(make);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(steps.step_overhead(make), first);
  EXPECT_NE(KnownSteps().step_overhead(make), first);
}

// Twice the ranks that are searched at most, twice the sequences: twice the pipelines, but for batches' ends.
TEST(Proposal, LargeMachinesRepeatWhatAPartOfThemTakes) {
  const cost::CostModel cost = test_cost();
  const int64_t context = cost::MemoryCost(cost, {}).max_len_tokens(1024) + 500;
  for (const int ranks : {2048, 2056, 3000}) {
    const std::vector<Proposal> proposed =
        propose({.world_size = ranks, .context_length = context, .sample_batches = samples(context)}, cost)
            .or_throw();
    ASSERT_FALSE(proposed.empty());
    EXPECT_GE(proposed[0].max_len_tokens, context);
    for (const Proposal& proposal : proposed) {
      EXPECT_NO_THROW(strategy::validate(proposal.strategy, ranks));
      EXPECT_GT(proposal.strategy.ranks(), ranks - 8);
      int64_t longest = 0;
      for (const strategy::Pipeline& pipeline : proposal.strategy.pipelines)
        longest = std::max(longest, SchemeCost(pipeline.scheme, cost, ranks).max_len_tokens());
      EXPECT_EQ(proposal.max_len_tokens, longest);
    }
  }
}

TEST(Proposal, WithoutBatchesStillHoldsTheContext) {
  const std::vector<Proposal> proposed =
      propose({.world_size = 4, .context_length = 2000}, test_cost()).or_throw();
  ASSERT_EQ(proposed.size(), 1u);
  EXPECT_GE(proposed[0].max_len_tokens, 2000);
}

// Covers models whose lanes must divide experts because they cannot gather them, and others.
TEST(Proposal, LooksAtNoSchemeTwice) {
  model::Outline outline = model::test_outline();
  outline.experts = {.count = 16, .per_token = 2, .hidden = 2048};
  const std::vector<int> degrees = {1, 2};
  bool gathers = false, divides_alone = false;
  for (int64_t megabytes = 40; megabytes <= 2560; megabytes += megabytes / 16) {
    const cost::CostModel cost(
        cost::analytic_options(outline, {}, {.device_bytes = megabytes * 1'000'000}, degrees, 8));
    const std::vector<SchemeCost> schemes =
        schemes_to_search(cost, 16, {.max_cp = 16, .max_fsdp = 16, .tokens_a_rank = 500});
    for (size_t i = 0; i < schemes.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        EXPECT_FALSE(schemes[i].scheme() == schemes[j].scheme()) << to_text(schemes[i].scheme());
      const strategy::Scheme& scheme = schemes[i].scheme();
      gathers = gathers || (scheme.fsdp == 16 && scheme.ep == 1);
      divides_alone = divides_alone || (scheme.fsdp == 16 && scheme.ep > 1);
    }
  }
  EXPECT_TRUE(gathers && divides_alone) << "no size tries what the test is of";
}

TEST(Proposal, OneRankHasOneStrategy) {
  const std::vector<strategy::Strategy> proposed = strategies_of(
      propose({.world_size = 1, .context_length = 100, .sample_batches = samples(100)}, test_cost())
          .or_throw());
  EXPECT_EQ(texts_of(proposed), (std::vector<std::string>{"1x<1,1,1>"}));
}

}  // namespace
}  // namespace sluice::plan
