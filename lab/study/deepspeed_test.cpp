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
  const auto sequences = test_sequences(test_lengths(3, inputs.context_length));
  for (const auto make :
       {static_cast<std::unique_ptr<System> (*)(const SystemInputs&)>(make_deepspeed), make_fsdp}) {
    const auto system = make(inputs);
    const SystemStep step = system->step(2, sequences);
    EXPECT_EQ(step.plan.step, 2);
    ASSERT_EQ(step.plan.pipelines.size(), 1u);
    const std::vector<strategy::PipelineMicroBatch>& micro_batches =
        step.plan.pipelines.front().micro_batches;
    for (const strategy::PipelineMicroBatch& micro_batch : micro_batches)
      EXPECT_EQ(micro_batch.lanes, micro_batches.front().lanes);
    const graph::StepGraph graph = expect_runs_all(step, sequences, system->cost(), inputs.world_size);
    EXPECT_GE(graph.makespan_ns, step.plan.estimated_ns) << system->configuration();
  }
}

TEST(DeepSpeed, GivenConfigurationIsKept) {
  const SystemInputs inputs = test_inputs();
  EXPECT_EQ(make_deepspeed(inputs, 4, true, inputs.context_length)->configuration(), "DP2 SP4 + AC, ZeRO-1");
  EXPECT_THROW(make_deepspeed(test_inputs(100'000'000), 4, false, 1000), base::InfeasibleError);
}

TEST(DeepSpeed, ParametersThatDoNotFitWholeAreShared) {
  const SystemInputs large{.cluster = strategy::cluster_preset("a800x8", 2),
                           .world_size = 16,
                           .cost = cost::CostModel(cost::shipped("a800-13b").options),
                           .context_length = 32768};
  const auto system = make_deepspeed(large, 8, false, 32768);
  EXPECT_EQ(system->configuration(), "DP2 SP8, ZeRO-3");
  const SystemStep step = system->step(0, test_sequences({32000, 30000, 20000, 15000, 14000}));
  EXPECT_EQ(step.plan.pipelines.front().pipeline.scheme, (strategy::Scheme{.cp = 16, .fsdp = 16}));
  EXPECT_EQ(step.before_ns, 0);
}

TEST(DeepSpeed, ContextThatNothingHoldsIsInfeasible) {
  for (const auto make : {static_cast<std::unique_ptr<System> (*)(const SystemInputs&)>(make_deepspeed),
                          make_fsdp, make_flexsp}) {
    EXPECT_THROW(make(test_inputs(100'000'000)), base::InfeasibleError);
  }
}

TEST(FlexSp, GroupsOfAMicroBatchDiffer) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_flexsp(inputs);
  std::vector<int64_t> lengths = test_lengths(3, inputs.context_length);
  for (int64_t tokens = 0; tokens < 12 * inputs.context_length; tokens += 1500) lengths.push_back(1500);
  const auto sequences = test_sequences(lengths);
  const SystemStep step = system->step(1, sequences);
  const graph::StepGraph graph = expect_runs_all(step, sequences, system->cost(), inputs.world_size);
  EXPECT_GE(graph.makespan_ns, step.plan.estimated_ns);
  EXPECT_TRUE(step.earlier.empty());
}

}  // namespace
}  // namespace sluice::study
