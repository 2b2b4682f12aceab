#include "study/hydraulis.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cost/shipped.h"
#include "study/rival_traits.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

int64_t sample_ns(const SystemInputs& inputs, System& system) {
  int64_t total_ns = 0;
  for (size_t b = 0; b < inputs.sample_batches.size(); ++b) {
    const SystemStep step = system.step(static_cast<int64_t>(b), test_sequences(inputs.sample_batches[b]));
    strategy::validate(step.plan, inputs.world_size);
    total_ns += step.plan.estimated_ns;
  }
  return total_ns;
}

TEST(Hydraulis, PlansWithoutLanesAndWithBothTieRules) {
  const SystemInputs inputs = test_inputs();
  for (const auto& system : {make_hydraulis(inputs), make_hydraulis_first(inputs)}) {
    const SystemStep step = system->step(5, test_sequences(test_lengths(9, inputs.context_length)));
    strategy::validate(step.plan, inputs.world_size);
    for (const strategy::PipelinePlan& pipeline : step.plan.pipelines) {
      EXPECT_EQ(pipeline.pipeline.scheme.cp, 1);
    }
    EXPECT_TRUE(traits_of(system->cost()).one_backward_cell);
  }
}

// A batch of short sequences: counted once a sequence, constants make long micro-batches look dear.
TEST(Hydraulis, ConstantsAreCountedByRule) {
  SystemInputs inputs{.cluster = strategy::cluster_preset("a800x8", 1),
                      .world_size = 8,
                      .cost = cost::CostModel(cost::shipped("a800-7b").options),
                      .context_length = 16384};
  inputs.sample_batches = {test_lengths(1, 16384), test_lengths(2, 8000)};
  const auto released = make_hydraulis(inputs), printed = make_hydraulis_printed(inputs);
  int64_t released_ns = 0, printed_ns = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto batch = test_sequences(test_lengths(seed, 6000, 120));
    released_ns += released->step(static_cast<int64_t>(seed), batch).plan.estimated_ns;
    printed_ns += printed->step(static_cast<int64_t>(seed), batch).plan.estimated_ns;
  }
  EXPECT_NE(released_ns, printed_ns);
}

TEST(Hydraulis, FirstThreeStepsOfTheAblationKeepOneStrategy) {
  const SystemInputs inputs = test_inputs();
  for (const AblationStep step :
       {AblationStep::kDispatch, AblationStep::kPacking, AblationStep::kHeterogeneous}) {
    const auto system = make_ablation(inputs, step);
    EXPECT_NE(system->configuration().find("x<"), std::string::npos) << system->configuration();
    if (step != AblationStep::kHeterogeneous) {
      EXPECT_EQ(system->configuration().find('+'), std::string::npos);
    }
    EXPECT_GT(sample_ns(inputs, *system), 0);
  }
}

TEST(Hydraulis, ContextThatNothingHoldsIsInfeasible) {
  const SystemInputs inputs = test_inputs(100'000'000);
  EXPECT_THROW(make_hydraulis(inputs), base::InfeasibleError);
  EXPECT_THROW(make_ablation(inputs, AblationStep::kDispatch), base::InfeasibleError);
}

}  // namespace
}  // namespace sluice::study
