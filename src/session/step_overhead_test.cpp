#include "session/step_overhead.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "cost/shipped.h"
#include "graph/build.h"
#include "plan/batch_sample.h"
#include "plan/planner.h"

namespace sluice::session {
namespace {

constexpr int kClockedRanks = 16;

std::vector<strategy::Sequence> random_batch(base::Rng& rng, int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t i = rng.between(1, 40); i > 0; --i)
    lengths.push_back(rng.between(10, rng.between(10, longest)));
  return plan::sequences_of(lengths);
}

plan::PlannerOptions options_beside(std::vector<std::string> texts) {
  plan::PlannerOptions options{.world_size = kClockedRanks};
  for (const std::string& text : texts)
    options.candidates.push_back(strategy::parse_strategy(text, kClockedRanks));
  return options;
}

TEST(ClockedStepOverhead, IsWhatTheClockSaysAndNoLessThanTheLeast) {
  const cost::CostModel cost(cost::shipped("a800-7b").options);
  const ClockedStepOverhead beside(cost);
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  base::Rng rng(3, 7);
  for (const char* text : {"2x<4,2,1>", "4x<4,1,1>", "2x<8,1,1>", "1x<2,1,8>", "2x<1,1,8,8>", "1x<1,1,16,16>",
                           "1x<8,1,1> + 2x<2,1,2>"}) {
    const plan::Planner planner(options_beside({text}), cost);
    for (int round = 0; round < 8; ++round) {
      const strategy::StepPlan plan =
          planner.plan(0, random_batch(rng, std::min<int64_t>(12'000, planner.max_len_tokens())));
      const int64_t ns = beside.of_plan_ns(plan, cost, kClockedRanks);
      EXPECT_EQ(graph::build(plan, table, cost, kClockedRanks).makespan_ns, plan.estimated_ns + ns) << text;
      EXPECT_GE(ns, beside.least_ns(plan.strategy(), cost, kClockedRanks)) << text;
    }
  }
}

TEST(ClockedStepOverhead, APlannerTakesTheCandidateWhoseStepEndsFirst) {
  const cost::CostModel cost(cost::shipped("a800-7b").options);
  const ClockedStepOverhead beside(cost);
  const std::vector<std::string> texts = {"4x<4,1,1>", "2x<8,1,1>", "2x<4,1,2>", "1x<8,1,1> + 4x<2,1,1>"};
  plan::PlannerOptions options = options_beside(texts);
  options.step_overhead = std::make_shared<ClockedStepOverhead>(cost);
  const plan::Planner all(options, cost);
  base::Rng rng(5, 7);
  for (int round = 0; round < 20; ++round) {
    const std::vector<strategy::Sequence> batch = random_batch(rng, 4'000);
    const strategy::StepPlan taken = all.plan(0, batch);
    const int64_t step_ns = taken.estimated_ns + beside.of_plan_ns(taken, cost, kClockedRanks);
    for (const std::string& text : texts) {
      const strategy::StepPlan alone = plan::Planner(options_beside({text}), cost).plan(0, batch);
      EXPECT_LE(step_ns, (alone.estimated_ns + beside.of_plan_ns(alone, cost, kClockedRanks)) * 101 / 100)
          << text;
    }
  }
}

TEST(ClockedStepOverhead, NothingIsBesideAStepWithoutSequences) {
  const cost::CostModel cost(cost::shipped("a800-7b").options);
  plan::PlannerOptions options = options_beside({"2x<8,1,1>", "4x<4,1,1>"});
  options.step_overhead = std::make_shared<ClockedStepOverhead>(cost);
  EXPECT_EQ(plan::Planner(options, cost).plan(0, {}).estimated_ns, 0);
}

}  // namespace
}  // namespace sluice::session
