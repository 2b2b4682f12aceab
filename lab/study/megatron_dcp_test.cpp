#include "study/megatron_dcp.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

TEST(MegatronDcp, RunsOnePipelineOfAllRanks) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_megatron_dcp(inputs);
  const auto sequences = test_sequences(test_lengths(3, inputs.context_length));
  const SystemStep step = system->step(6, sequences);
  strategy::validate(step.plan, inputs.world_size);
  EXPECT_EQ(step.plan.step, 6);
  EXPECT_EQ(step.plan.sequences, sequences);
  ASSERT_EQ(step.plan.pipelines.size(), 1u);
  EXPECT_EQ(step.plan.pipelines[0].pipeline.scheme.ranks(), inputs.world_size);
}

TEST(MegatronDcp, ContextThatNothingHoldsIsInfeasible) {
  EXPECT_THROW(make_megatron_dcp(test_inputs(100'000'000)), base::InfeasibleError);
}

}  // namespace
}  // namespace sluice::study
