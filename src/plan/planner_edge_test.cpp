// Batches at the ends of what planning is given.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "plan/batch_sample.h"
#include "plan/planner.h"
#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

using strategy::Sequence;
using strategy::StepPlan;

Planner planner_of(const std::vector<std::string>& texts, int world_size, Effort effort = Effort::kFull) {
  PlannerOptions options{.world_size = world_size, .effort = effort};
  for (const std::string& text : texts) {
    options.candidates.push_back(strategy::parse_strategy(text, world_size));
  }
  return {std::move(options), test_cost()};
}

// Plans, and checks what every plan must hold.
StepPlan plan_and_check(const Planner& planner, const std::vector<int64_t>& lengths) {
  const int world_size = planner.options().world_size;
  StepPlan plan = planner.plan(7, sequences_of(lengths));
  strategy::validate(plan, world_size);
  int64_t longest_ns = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const auto load = schedule::pipeline_load(pipeline, planner.cost(), world_size);
    longest_ns = std::max(longest_ns, schedule::schedule_pipeline(load).makespan_ns);
  }
  EXPECT_EQ(plan.estimated_ns, longest_ns);
  EXPECT_LE(plan.lower_bound_ns, plan.estimated_ns);
  return plan;
}

size_t micro_batches(const StepPlan& plan) {
  size_t count = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
      count += static_cast<size_t>(micro_batch.lanes);
  }
  return count;
}

std::string refusal(const Planner& planner, int64_t length) {
  try {
    planner.plan(0, sequences_of({5, length}));
  } catch (const base::InfeasibleError& error) {
    return error.what();
  }
  return "planned";
}

TEST(PlannerEdge, OneSequenceLeavesTheOtherPipelinesEmpty) {
  for (const int64_t length : {1, 2, 700}) {
    EXPECT_EQ(micro_batches(plan_and_check(planner_of({"4x<1,1,1>"}, 4), {length})), 1u) << length;
    EXPECT_EQ(micro_batches(plan_and_check(planner_of({"<1,4,1>"}, 4), {length})), 1u) << length;
  }
}

TEST(PlannerEdge, EqualSequencesAreSpreadEvenlyOverEqualPipelines) {
  const StepPlan plan = plan_and_check(planner_of({"4x<1,1,1>"}, 4), std::vector<int64_t>(64, 100));
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    size_t pieces = 0;
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
      pieces += micro_batch.sequences.size();
    EXPECT_EQ(pieces, 16u);
  }
}

TEST(PlannerEdge, HundredThousandSequencesArePlanned) {
  base::Rng rng(1, 1);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 100'000; ++i) lengths.push_back(rng.between(1, rng.below(50) == 0 ? 1500 : 60));
  plan_and_check(planner_of({"<1,2,1> + 2x<1,1,1>", "4x<1,1,1>"}, 4, Effort::kQuick), lengths);
}

TEST(PlannerEdge, ASequenceOfExactlyWhatIsHeldIsPlannedAndOneTokenMoreIsNot) {
  for (const char* text : {"<1,1,1>", "<2,1,1>", "<1,4,1>", "<1,1,2>", "<2,1,1> + 2x<1,1,1>"}) {
    const Planner planner = planner_of({text}, 4);
    const int64_t most = planner.max_len_tokens();
    plan_and_check(planner, {most});
    plan_and_check(planner, {most, most, 1});
    EXPECT_NE(refusal(planner, most + 1), "planned") << text;
  }
}

TEST(PlannerEdge, IdleRanksAndOneRankArePlanned) {
  plan_and_check(planner_of({"<1,1,1>"}, 1), {300, 40, 1});
  const StepPlan plan = plan_and_check(planner_of({"<1,2,1> + <2,1,1>"}, 7), {300, 40, 1});
  EXPECT_EQ(plan.pipelines.size(), 2u);
}

TEST(PlannerEdge, AHundredCandidatesAreComparedAndTheBestIsTaken) {
  std::vector<std::string> texts;
  for (int ones = 0; ones <= 8; ++ones) {
    for (int twos = 0; ones + 2 * twos <= 16; ++twos) {
      for (int deep = 0; ones + 2 * twos + 4 * deep <= 16 && texts.size() < 100; ++deep) {
        if (ones + twos + deep == 0) continue;
        std::vector<std::string> parts;
        if (ones > 0) parts.push_back(base::text(ones, "x<1,1,1>"));
        if (twos > 0) parts.push_back(base::text(twos, "x<2,1,1>"));
        if (deep > 0) parts.push_back(base::text(deep, "x<1,4,1>"));
        texts.push_back(base::join(parts, " + "));
      }
    }
  }
  ASSERT_EQ(texts.size(), 100u);
  const std::vector<int64_t> lengths = {900, 500, 500, 300, 120, 80, 30, 30, 30, 9, 2};
  const StepPlan plan = plan_and_check(planner_of(texts, 16, Effort::kQuick), lengths);
  ASSERT_EQ(plan.candidates.size(), 100u);
  for (const auto& candidate : plan.candidates) EXPECT_GE(candidate.estimated_ns, plan.estimated_ns);
}

TEST(PlannerEdge, RefusalNamesTheSequenceAndTheSmallestSchemeThatHoldsIt) {
  const Planner planner = planner_of({"4x<1,1,1>"}, 4);
  const cost::CostModel& cost = planner.cost();
  const int64_t tp = SchemeCost({.tp = 2}, cost, 4).max_len_tokens();
  const int64_t pp = SchemeCost({.pp = 2}, cost, 4).max_len_tokens();
  const int64_t cp = SchemeCost({.cp = 2}, cost, 4).max_len_tokens();
  const int64_t length = planner.max_len_tokens() + 1;
  const std::string expected = pp >= length ? "<1,2,1>" : tp >= length ? "<2,1,1>" : "<1,1,2>";
  ASSERT_LE(length, std::max({tp, pp, cp}));
  const std::string message = refusal(planner, length);
  EXPECT_NE(message.find(base::text("document 1 has a sequence of ", base::human_count(length))),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(base::text("add a strategy with ", expected)), std::string::npos) << message;
}

TEST(PlannerEdge, RefusalOfAFixedStrategyNamesTheListedOneThatHoldsTheSequence) {
  Planner planner = planner_of({"4x<1,1,1>", "<1,1,4>"}, 4);
  PlannerOptions options = planner.options();
  options.selection = Selection::kFixed;
  options.fixed_candidate = 0;
  const cost::CostModel cost = planner.cost();
  const std::string message =
      refusal(Planner(options, cost), planner_of({"4x<1,1,1>"}, 4).max_len_tokens() + 1);
  EXPECT_NE(message.find("parallel.select = \"best\" may take '1x<1,1,4>', which holds it"),
            std::string::npos)
      << message;
}

TEST(PlannerEdge, RefusalSaysWhenNoSchemeHoldsTheSequence) {
  const std::string message = refusal(planner_of({"4x<1,1,1>"}, 4), 1 << 20);
  EXPECT_NE(message.find("no scheme on 4 ranks holds it"), std::string::npos) << message;
}

}  // namespace
}  // namespace sluice::plan
