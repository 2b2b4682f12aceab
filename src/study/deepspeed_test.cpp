#include "study/deepspeed.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cost/shipped.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

TEST(DeepSpeed, EverySequenceIsSharedByAllRanksOfItsGroup) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_deepspeed(inputs);
  EXPECT_NE(system->configuration().find("SP"), std::string::npos) << system->configuration();
  const auto sequences = test_sequences(test_lengths(3, inputs.context_length));
  const SystemStep step = system->step(2, sequences);
  strategy::validate(step.plan, inputs.world_size);
  EXPECT_EQ(step.plan.step, 2);
  EXPECT_EQ(step.plan.sequences, sequences);
  for (const strategy::PipelinePlan& pipeline : step.plan.pipelines) {
    EXPECT_EQ(pipeline.pipeline.scheme.tp * pipeline.pipeline.scheme.pp, 1);
    for (const strategy::Unit& unit : pipeline.units) EXPECT_EQ(unit.lanes, pipeline.pipeline.scheme.cp);
  }
  const graph::StepGraph graph = graph::build(step.plan, model::parameter_table(inputs.cost.options().shape),
                                              system->cost(), inputs.world_size);
  EXPECT_GE(graph.makespan_ns, step.plan.estimated_ns);
}

TEST(DeepSpeed, GivenConfigurationIsKept) {
  const SystemInputs inputs = test_inputs();
  EXPECT_EQ(make_deepspeed(inputs, 4, true, inputs.context_length)->configuration(), "DP2 SP4 + AC, ZeRO-1");
  EXPECT_THROW(make_deepspeed(test_inputs(100'000'000), 4, false, 1000), base::InfeasibleError);
}

// One group alone never waits for others, and ZeRO-1 for nobody.
TEST(DeepSpeed, GroupsWaitForOneAnotherOnlyWhereZeroNeedsAll) {
  const SystemInputs inputs = test_inputs();
  const auto lengths = test_lengths(3, inputs.context_length);
  const auto apart = make_deepspeed(inputs, 4, false, inputs.context_length);
  ASSERT_NE(apart->configuration().find("ZeRO-1"), std::string::npos) << apart->configuration();
  EXPECT_EQ(apart->step(0, test_sequences(lengths)).before_ns, 0);
  const SystemInputs large{.cluster = strategy::cluster_preset("a800x8", 2),
                           .world_size = 16,
                           .cost = cost::CostModel(cost::shipped("a800-13b").options),
                           .context_length = 32768};
  const auto together = make_deepspeed(large, 8, false, 32768);
  ASSERT_EQ(together->configuration(), "DP2 SP8, ZeRO-3");
  // Dealt in turns: one group has 32,000 and 20,000 tokens, the other 30,000 and 15,000 + 14,000.
  const SystemStep step = together->step(0, test_sequences({32000, 30000, 20000, 15000, 14000}));
  EXPECT_GT(step.before_ns, 0);
  EXPECT_EQ(together->step(0, test_sequences({32000, 32000})).before_ns, 0);
}

TEST(DeepSpeed, ContextThatNothingHoldsIsInfeasible) {
  EXPECT_THROW(make_deepspeed(test_inputs(100'000'000)), base::InfeasibleError);
}

}  // namespace
}  // namespace sluice::study
