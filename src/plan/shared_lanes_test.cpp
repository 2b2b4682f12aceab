#include <gmock/gmock.h>

#include "base/error.h"
#include "base/rng.h"
#include "cost/memory_cost.h"
#include "plan/planner.h"
#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"
#include "strategy/pass.h"

namespace sluice::plan {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<strategy::Sequence> batch(uint64_t seed, int64_t longest) {
  base::Rng rng(seed, 31);
  std::vector<strategy::Sequence> sequences;
  for (int64_t i = rng.between(1, 60); i > 0; --i)
    sequences.push_back({i, 0, rng.between(1, rng.between(1, longest))});
  return sequences;
}

Planner laned_planner(const std::vector<std::string>& candidates, int world_size,
                      std::shared_ptr<const Method> method = ours()) {
  PlannerOptions options{.world_size = world_size, .method = std::move(method)};
  for (const std::string& text : candidates)
    options.candidates.push_back(strategy::parse_strategy(text, world_size));
  return Planner(options, test_cost());
}

// Whole sequences, sequences that need several lanes, one stage and two, beside pipelines that share nothing.
TEST(SharedLanes, PlansAreValidAndScoredByTheirScheduleAndNeverBelowTheBound) {
  for (const char* text :
       {"<1,1,2,2>", "<1,1,8,4>", "<1,1,8,8>", "<1,2,4,2>", "<2,1,4,4>", "<1,1,4,2> + 4x<1,1,1>"}) {
    const Planner planner = laned_planner({text}, 8);
    const int64_t holds = planner.max_len_tokens();
    ASSERT_GT(holds, 0) << text;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const strategy::StepPlan plan = planner.plan(0, batch(seed, seed % 2 == 0 ? holds : holds / 8));
      ASSERT_NO_THROW(strategy::validate(plan, 8)) << text << " seed " << seed;
      int64_t longest_ns = 0;
      for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
        const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, planner.cost(), 8);
        longest_ns = std::max(longest_ns, schedule::schedule_pipeline(load).makespan_ns);
      }
      EXPECT_EQ(plan.estimated_ns, longest_ns) << text << " seed " << seed;
      EXPECT_LE(plan.lower_bound_ns, plan.estimated_ns) << text << " seed " << seed;
    }
  }
}

// Links so slow that most passes wait for gathers and sums, of pipelines that begin inside nodes, too.
TEST(SharedLanes, NothingBeatsTheBoundWherePassesWaitForGathers) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Rng rng(seed, 33);
    cost::CostModel::Options machine = test_cost().options();
    machine.topology = 4;
    machine.intra.bytes_per_s = rng.between(1'000'000, 100'000'000'000);
    machine.inter.bytes_per_s = rng.between(1'000'000, machine.intra.bytes_per_s);
    const cost::CostModel cost(machine);
    for (const char* text : {"<1,1,12,6>", "<1,1,12,12>", "<1,1,2> + <1,1,8,4> + <1,1,2,2>", "<2,1,6,3>"}) {
      const Planner planner({.world_size = 12, .candidates = {strategy::parse_strategy(text, 12)}}, cost);
      const strategy::StepPlan plan = planner.plan(0, batch(seed, planner.max_len_tokens() / 4));
      EXPECT_LE(plan.lower_bound_ns, plan.estimated_ns) << text << " seed " << seed;
    }
  }
}

// Four loads of a kind each on four lanes make two passes of equals. A node a lane, so that nothing is cut.
TEST(SharedLanes, LoadsOfEqualWorkRunSideBySide) {
  cost::CostModel::Options machine = test_cost().options();
  machine.topology = 1;
  machine.inter.bytes_per_s = 1'000'000;
  const Planner planner({.world_size = 4, .candidates = {strategy::parse_strategy("<1,1,4,4>", 4)}},
                        cost::CostModel(machine));
  const int64_t holds = SchemeCost({1, 1, 4, 4}, planner.cost(), 4).lane_max_len_tokens();
  std::vector<strategy::Sequence> sequences;
  for (int i = 0; i < 8; ++i) sequences.push_back({i, 0, i % 2 == 0 ? holds : holds * 2 / 3});
  const strategy::StepPlan plan = planner.plan(0, sequences);
  const std::vector<strategy::Pass> passes = strategy::passes(plan.pipelines[0]);
  ASSERT_EQ(passes.size(), 2u);
  for (const strategy::Pass& pass : passes) {
    EXPECT_EQ(pass.micro_batches.size(), 4u);
    for (int lane = 0; lane < 4; ++lane)
      EXPECT_EQ(tokens_on(plan.pipelines[0], pass, lane), tokens_of(plan.pipelines[0], pass));
  }
}

// Parameters that lanes share leave room for longer micro-batches.
TEST(SharedLanes, SharedParametersMakeRoom) {
  const cost::CostModel cost = test_cost();
  EXPECT_GT(cost::MemoryCost(cost, {1, 1, 8, 8}).max_len_tokens(8),
            cost::MemoryCost(cost, {1, 1, 8}).max_len_tokens(8));
}

TEST(SharedLanes, MethodsThatKnowNothingOfItRefuse) {
  EXPECT_THAT(
      [] { laned_planner({"<1,1,4,2>"}, 4, plain()); },
      ThrowsMessage<base::InputError>(HasSubstr("leave the 2 of <1,1,4,2> out, or plan with method 'ours'")));
}

}  // namespace
}  // namespace sluice::plan
