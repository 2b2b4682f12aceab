#include "study/deepspeed.h"

#include <gtest/gtest.h>

#include "base/error.h"
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
    for (const auto& lane : pipeline.lanes) EXPECT_EQ(lane.size(), pipeline.lanes[0].size());
  }
  const graph::StepGraph graph = graph::build(step.plan, model::parameter_table(inputs.cost.options().shape),
                                              system->cost(), inputs.world_size);
  EXPECT_GE(graph.makespan_ns, step.plan.estimated_ns);
}

TEST(DeepSpeed, GivenConfigurationIsKept) {
  const SystemInputs inputs = test_inputs();
  EXPECT_EQ(make_deepspeed(inputs, 4, true)->configuration(), "DP2 SP4 + AC, ZeRO-1");
  EXPECT_THROW(make_deepspeed(test_inputs(100'000'000), 4, false), base::InfeasibleError);
}

TEST(DeepSpeed, ContextThatNothingHoldsIsInfeasible) {
  EXPECT_THROW(make_deepspeed(test_inputs(100'000'000)), base::InfeasibleError);
}

}  // namespace
}  // namespace sluice::study
