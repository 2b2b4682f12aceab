#include "survive/plan_memory.h"

#include <gtest/gtest.h>

#include "strategy/strategy.h"

namespace sluice::survive {
namespace {

// A plan of one sequence on one rank.
strategy::StepPlan plan_of(int64_t step, int64_t length_tokens) {
  strategy::StepPlan plan;
  plan.step = step;
  plan.sequences = {{.document = 3, .length_tokens = length_tokens, .loss_tokens = 5}};
  plan.pipelines.push_back({.pipeline = strategy::parse_strategy("<1,1,1>", 1).pipelines[0],
                            .max_len_tokens = length_tokens,
                            .micro_batches = {{.sequences = {{0, length_tokens}}}}});
  plan.estimated_ns = 1'100;
  plan.lower_bound_ns = 1'000;
  return plan;
}

TEST(PlanMemory, FindsWhatWasKeptUnderItsKeyAlone) {
  PlanMemory memory;
  const strategy::StepPlan plan = plan_of(9, 12);
  EXPECT_FALSE(memory.find({1, 9, plan.sequences}, 1));
  memory.keep({1, 9, plan.sequences}, plan);
  const auto found = memory.find({1, 9, plan.sequences}, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->pipelines, plan.pipelines);
  EXPECT_EQ(found->sequences, plan.sequences);
  EXPECT_EQ(found->gap_ppm(), plan.gap_ppm());
  EXPECT_FALSE(memory.find({2, 9, plan.sequences}, 1));
  EXPECT_FALSE(memory.find({1, 10, plan.sequences}, 1));
  EXPECT_FALSE(memory.find({1, 9, plan_of(9, 13).sequences}, 1));
}

TEST(PlanMemory, KeepsTheNewest) {
  PlanMemory memory;
  const std::vector<strategy::Sequence> sequences = plan_of(0, 12).sequences;
  for (int64_t step = 0; step <= PlanMemory::kPlans; ++step)
    memory.keep({1, step, sequences}, plan_of(step, 12));
  EXPECT_FALSE(memory.find({1, 0, sequences}, 1));
  for (int64_t step = 1; step <= PlanMemory::kPlans; ++step)
    EXPECT_EQ(memory.find({1, step, sequences}, 1)->step, step);
}

}  // namespace
}  // namespace sluice::survive
