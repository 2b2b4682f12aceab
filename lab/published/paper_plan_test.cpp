#include "published/paper_plan.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "plan/planner.h"
#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::published {
namespace {

using strategy::Sequence;
using strategy::StepPlan;

constexpr int kPlannedRanks = 4;

plan::PlannerOptions options_of(const std::vector<std::string>& texts) {
  plan::PlannerOptions options{.world_size = kPlannedRanks};
  for (const std::string& text : texts)
    options.candidates.push_back(strategy::parse_strategy(text, kPlannedRanks));
  return options;
}

std::vector<Sequence> random_sequences(uint64_t seed, uint64_t stream, int64_t most) {
  base::Rng rng(seed, stream);
  std::vector<Sequence> sequences;
  for (int64_t i = rng.between(1, most); i > 0; --i) {
    const int64_t length = rng.between(2, rng.below(8) == 0 ? 2000 : 400);
    sequences.push_back({.document = i, .length_tokens = length});
  }
  return sequences;
}

TEST(PaperPlan, IsValidAndTimedByItsSchedule) {
  plan::PlannerOptions options =
      options_of({"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "<1,4,1>"});
  options.method = paper();
  const plan::Planner planner(options, plan::test_cost());
  options.method = paper({.dispatch_rule = DispatchRule::kIdeal});
  const plan::Planner ideal(options, plan::test_cost());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<Sequence> sequences = random_sequences(seed, 11, 50);
    for (const plan::Planner* each : {&planner, &ideal}) {
      const StepPlan plan = each->plan(static_cast<int64_t>(seed), sequences);
      ASSERT_NO_THROW(strategy::validate(plan, kPlannedRanks)) << "seed " << seed;
      int64_t longest_ns = 0;
      for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
        const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, planner.cost(), kPlannedRanks);
        longest_ns = std::max(longest_ns, schedule::schedule_pipeline(load).makespan_ns);
      }
      EXPECT_EQ(plan.estimated_ns, longest_ns);
      EXPECT_EQ(plan.candidates.size(), 4u);
      EXPECT_EQ(strategy::canonical_bytes(plan),
                strategy::canonical_bytes(each->plan(static_cast<int64_t>(seed), sequences)));
    }
  }
}

// No plan that this method finds lies below the bound of ours, nor far below our plan.
TEST(PaperPlan, IsNoBetterThanOurs) {
  for (const std::string text : {"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "<1,4,1>"}) {
    plan::PlannerOptions options = options_of({text});
    const plan::Planner ours(options, plan::test_cost());
    options.method = paper();
    const plan::Planner theirs(options, plan::test_cost());
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<Sequence> sequences = random_sequences(seed, 22, 90);
      const StepPlan plan = ours.plan(0, sequences);
      const int64_t paper_ns = theirs.plan(0, sequences).estimated_ns;
      EXPECT_LE(plan.lower_bound_ns, paper_ns) << text;
      EXPECT_LE(plan.estimated_ns * 100, paper_ns * 102) << text;
    }
  }
}

}  // namespace
}  // namespace sluice::published
