#include "study/megatron.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "model/test_outline.h"
#include "study/rival_traits.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

TEST(Megatron, RunsOneStrategyForEveryBatch) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_megatron(inputs);
  EXPECT_FALSE(system->configuration().empty());
  std::string strategy;
  for (int64_t step = 0; step < 4; ++step) {
    const auto sequences =
        test_sequences(test_lengths(10 + static_cast<uint64_t>(step), inputs.context_length));
    const SystemStep done = system->step(step, sequences);
    strategy::validate(done.plan, inputs.world_size);
    EXPECT_EQ(done.plan.step, step);
    EXPECT_EQ(done.plan.sequences, sequences);
    EXPECT_EQ(done.before_ns, 0);
    if (strategy.empty()) strategy = to_text(done.plan.strategy());
    EXPECT_EQ(to_text(done.plan.strategy()), strategy);
  }
}

TEST(Megatron, BackwardIsOneCell) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_megatron(inputs);
  EXPECT_TRUE(traits_of(system->cost()).one_backward_cell);
  const SystemStep done = system->step(0, test_sequences(test_lengths(3, inputs.context_length)));
  const graph::StepGraph graph = graph::build(done.plan, model::parameter_table(inputs.cost.options().model),
                                              system->cost(), inputs.world_size);
  EXPECT_GE(graph.makespan_ns, done.plan.estimated_ns);
}

TEST(Megatron, ACarefulHandIsNoSlowerOnItsSample) {
  const SystemInputs inputs = test_inputs();
  int64_t dealt_ns = 0;
  int64_t balanced_ns = 0;
  const auto turns = make_megatron(inputs);
  const auto careful = make_static(inputs);
  for (const auto& batch : inputs.sample_batches) {
    dealt_ns += turns->step(0, test_sequences(batch)).plan.estimated_ns;
    balanced_ns += careful->step(0, test_sequences(batch)).plan.estimated_ns;
  }
  EXPECT_LE(balanced_ns, dealt_ns);
}

TEST(Megatron, ContextThatNothingHoldsIsInfeasible) {
  EXPECT_THROW(make_megatron(test_inputs(100'000'000)), base::InfeasibleError);
}

// So large that experts must be divided, by neighbours or between nodes.
SystemInputs inputs_of_experts() {
  model::Outline outline = model::test_outline_of_8_heads();
  outline.experts = {.count = 64, .per_token = 2, .hidden = outline.ffn_hidden};
  SystemInputs inputs = test_inputs(700);
  const std::vector<int> degrees = {1};
  inputs.cost =
      cost::CostModel(cost::analytic_options(outline, {}, {.device_bytes = 285'000'000}, degrees, 4));
  return inputs;
}

TEST(Rivals, DivideExpertsThatNoRankHolds) {
  const SystemInputs inputs = inputs_of_experts();
  const auto sequences = test_sequences(test_lengths(3, inputs.context_length));
  for (const auto make :
       {static_cast<std::unique_ptr<System> (*)(const SystemInputs&)>(make_megatron), make_fsdp,
        static_cast<std::unique_ptr<System> (*)(const SystemInputs&)>(make_deepspeed)}) {
    const auto system = make(inputs);
    const SystemStep step = system->step(2, sequences);
    const graph::StepGraph graph = expect_runs_all(step, sequences, system->cost(), inputs.world_size);
    EXPECT_GE(graph.makespan_ns, step.plan.estimated_ns) << system->configuration();
    const bool gathers = make == make_fsdp;
    EXPECT_TRUE(gathers || system->configuration().find(" EP") != std::string::npos)
        << system->configuration();
  }
}

}  // namespace
}  // namespace sluice::study
