#include "plan/fluid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "plan/planner.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

constexpr int kFluidRanks = 8;

std::vector<std::vector<int64_t>> random_batches(int count, int64_t longest) {
  std::vector<std::vector<int64_t>> batches;
  for (int b = 0; b < count; ++b) {
    base::Rng rng(static_cast<uint64_t>(b), 5);
    std::vector<int64_t>& batch = batches.emplace_back();
    for (int i = 0; i < 60; ++i) batch.push_back(rng.between(20, 700));
    batch.push_back(rng.between(700, longest));
  }
  return batches;
}

// The most work over every number of micro-batches, one at a time.
int64_t slow_capacity_ns(const SchemeCost& scheme, int64_t full_ns, int64_t time_ns) {
  const double bubble = (scheme.scheme().pp - 1) / 2.0;
  double most_ns = 0;
  for (double count = std::max(1.0, static_cast<double>(time_ns) / static_cast<double>(full_ns) + 0.5);
       count < 512; count += 1.0 / 16) {
    const auto constant_ns = static_cast<double>(scheme.micro_batch_ns());
    most_ns = std::max(
        most_ns, (static_cast<double>(time_ns) - constant_ns * (count + bubble)) * count / (count + bubble));
  }
  return static_cast<int64_t>(most_ns);
}

TEST(Fluid, CapacityIsTheBestOverAllCountsOfMicroBatches) {
  const cost::CostModel cost = test_cost();
  for (const int pp : {1, 2, 4}) {
    const SchemeCost scheme({.tp = 1, .pp = pp}, cost, kFluidRanks);
    const Capacity capacity(scheme, 300'000'000);
    int64_t previous = 0;
    for (const int64_t time_ns : {50'000'000LL, 200'000'000LL, 900'000'000LL, 5'000'000'000LL}) {
      const int64_t slow_ns = slow_capacity_ns(scheme, 300'000'000, time_ns);
      EXPECT_NEAR(static_cast<double>(capacity.work_ns(time_ns)), static_cast<double>(slow_ns),
                  static_cast<double>(slow_ns) / 50 + 2)
          << pp << " stages, " << time_ns;
      EXPECT_GE(capacity.work_ns(time_ns), previous);
      previous = capacity.work_ns(time_ns);
    }
  }
}

TEST(Fluid, EstimatesAreNearPlans) {
  const cost::CostModel cost = test_cost();
  const std::vector<SchemeCost> schemes = usable_schemes(cost, kFluidRanks, 1);
  const auto batches = random_batches(6, schemes.back().max_len_tokens());
  const FluidTimes fluid(schemes, batches);
  for (const char* text : {"8x<1,1,1>", "4x<2,1,1>", "1x<4,1,1> + 4x<1,1,1>", "2x<2,2,1>"}) {
    const strategy::Strategy strategy = strategy::parse_strategy(text, kFluidRanks);
    Mix mix(schemes.size(), 0);
    for (size_t k = 0; k < schemes.size(); ++k) {
      mix[k] = static_cast<int>(std::count_if(
          strategy.pipelines.begin(), strategy.pipelines.end(),
          [&](const strategy::Pipeline& pipeline) { return pipeline.scheme == schemes[k].scheme(); }));
    }
    EXPECT_EQ(to_text(strategy_of(mix, schemes, kFluidRanks)), text);
    const Planner planner({.world_size = kFluidRanks, .candidates = {strategy}}, cost);
    int64_t planned_ns = 0, fluid_ns = 0;
    for (size_t b = 0; b < batches.size(); ++b) {
      std::vector<strategy::Sequence> sequences;
      for (const int64_t length : batches[b]) sequences.push_back({.length_tokens = length});
      planned_ns += planner.plan(0, sequences).estimated_ns;
      fluid_ns += fluid.estimate_ns(b, mix);
    }
    const double ratio = static_cast<double>(planned_ns) / static_cast<double>(fluid_ns);
    EXPECT_GT(ratio, 0.85) << text;
    EXPECT_LT(ratio, 1.25) << text;
  }
}

TEST(Fluid, LimitCutsOffWhatIsSlower) {
  const cost::CostModel cost = test_cost();
  const std::vector<SchemeCost> schemes = usable_schemes(cost, kFluidRanks, 1);
  const auto batches = random_batches(3, schemes.back().max_len_tokens());
  const FluidTimes fluid(schemes, batches);
  for (size_t k = 0; k < schemes.size(); ++k) {
    Mix mix(schemes.size(), 0);
    mix[k] = kFluidRanks / schemes[k].scheme().ranks();
    for (size_t b = 0; b < batches.size(); ++b) {
      const int64_t time_ns = fluid.estimate_ns(b, mix);
      EXPECT_EQ(fluid.estimate_ns(b, mix, time_ns), time_ns);
      EXPECT_EQ(fluid.estimate_ns(b, mix, 2 * time_ns), time_ns);
      EXPECT_EQ(fluid.estimate_ns(b, mix, time_ns - time_ns / 50), cost::kLongestNs);
    }
  }
}

TEST(Fluid, NoMixBeatsTheIdealAndItsSharesFillTheRanks) {
  const cost::CostModel cost = test_cost();
  const std::vector<SchemeCost> schemes = usable_schemes(cost, kFluidRanks, 1);
  const auto batches = random_batches(4, schemes.back().max_len_tokens());
  const FluidTimes fluid(schemes, batches);
  std::vector<size_t> all(schemes.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (size_t b = 0; b < batches.size(); ++b) {
    const auto ideal = fluid.ideal(b, kFluidRanks, all);
    ASSERT_TRUE(ideal);
    int64_t milli = 0;
    for (size_t k = 0; k < schemes.size(); ++k) {
      milli += ideal->milli_pipelines[k] * schemes[k].scheme().ranks();
    }
    EXPECT_LE(milli, kFluidRanks * 1000);
    for (size_t k = 0; k < schemes.size(); ++k) {
      Mix mix(schemes.size(), 0);
      mix[k] = kFluidRanks / schemes[k].scheme().ranks();
      EXPECT_GE(fluid.estimate_ns(b, mix), ideal->time_ns);
    }
  }
}

TEST(Fluid, BatchThatNoPipelineHoldsIsNever) {
  const cost::CostModel cost = test_cost();
  const std::vector<SchemeCost> schemes = usable_schemes(cost, kFluidRanks, 1);
  const SchemeCost& smallest = schemes.back();
  const FluidTimes fluid(schemes, {{smallest.max_len_tokens() + 1}});
  Mix mix(schemes.size(), 0);
  mix.back() = kFluidRanks;
  EXPECT_EQ(fluid.estimate_ns(0, mix), cost::kLongestNs);
}

}  // namespace
}  // namespace sluice::plan
