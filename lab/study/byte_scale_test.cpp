#include "study/byte_scale.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "cost/memory_cost.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "study/megatron.h"
#include "study/system_kinds.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

// A context that needs three lanes of a thousand tokens.
constexpr LaneLayout kLayout{.tokens = 1000};
constexpr int64_t kContext = 2900;

TEST(ByteScaleSystem, LanesTakeThePlaceOfStaticOnes) {
  const SystemInputs inputs = test_inputs(kContext);
  const published::StaticStrategy fixed = static_cp(inputs, kLayout);
  EXPECT_EQ(fixed.scheme, (strategy::Scheme{.cp = 4}));
  EXPECT_EQ(fixed.pipelines, 2);
  EXPECT_EQ(fixed.micro_batch_tokens, 725);
  const auto sequences = test_sequences(test_lengths(3, kContext));
  const int64_t static_ns = make_megatron(inputs, fixed)->step(0, sequences).plan.estimated_ns;
  for (const ByteScaleStep step : {ByteScaleStep::kLanes, ByteScaleStep::kBalance}) {
    const auto system = make_byte_scale(inputs, step, kLayout);
    const SystemStep done = system->step(6, sequences);
    strategy::validate(done.plan, inputs.world_size);
    EXPECT_EQ(done.plan.step, 6);
    EXPECT_EQ(done.plan.sequences, sequences);
    EXPECT_EQ(to_text(done.plan.strategy()), "1x<1,1,8>");
    if (step == ByteScaleStep::kBalance) {
      EXPECT_LT(done.plan.estimated_ns, static_ns);
    }
  }
}

// Copies to host memory that hide behind any layer: a lane takes more of a sequence than it could keep.
TEST(ByteScaleSystem, OffloadingSavesLanesAndItsGraphsAreProved) {
  SystemInputs inputs = test_inputs();
  cost::CostModel::Options options = inputs.cost.options();
  options.host = {0, 1'000'000'000'000};
  inputs.cost = cost::CostModel(options);
  const int64_t held = cost::MemoryCost(inputs.cost, {}).max_len_tokens(inputs.world_size);
  const LaneLayout layout{.tokens = held * 5 / 8};
  inputs.context_length = held * 12 / 5;
  const auto sequences = test_sequences(test_lengths(3, inputs.context_length));
  const model::ParameterTable table = model::parameter_table(options.model);
  for (const ByteScaleStep step : {ByteScaleStep::kLanes, ByteScaleStep::kBalance}) {
    const auto system = make_byte_scale(inputs, step, layout, published::OffloadRule::kFewestLanes);
    const SystemStep done = system->step(0, sequences);
    strategy::validate(done.plan, inputs.world_size);
    int64_t most_tokens = 0;
    for (const strategy::PipelineMicroBatch& micro_batch : done.plan.pipelines[0].micro_batches) {
      EXPECT_EQ(micro_batch.memory.offload_permille > 0, micro_batch.tokens() > layout.tokens);
      most_tokens = std::max(most_tokens, micro_batch.tokens());
    }
    EXPECT_GT(most_tokens, held);
    const graph::StepGraph graph = graph::build(done.plan, table, system->cost(), inputs.world_size);
    EXPECT_GE(graph.makespan_ns, done.plan.estimated_ns);
  }
}

// Each step may do what the one before it does, and more.
TEST(ByteScaleSystem, ByNameTakesTheBestLayoutForEachStep) {
  const SystemInputs inputs = test_inputs();
  const auto sequences = test_sequences(test_lengths(3, inputs.context_length));
  for (const char* name : {"byte_scale_lanes", "byte_scale_offload", "byte_scale"}) {
    const auto system = system_kind(name).make(inputs);
    const SystemStep done = system->step(2, sequences);
    strategy::validate(done.plan, inputs.world_size);
    EXPECT_EQ(done.plan.sequences, sequences);
    ASSERT_EQ(done.plan.pipelines.size(), 1u) << name;
    EXPECT_EQ(done.plan.pipelines[0].pipeline.scheme.ranks(), inputs.world_size) << name;
  }
  EXPECT_THROW(system_kind("byte_scale").make(test_inputs(100'000'000)), base::InfeasibleError);
}

TEST(ByteScaleSystem, ContextThatAllLanesDoNotHoldIsInfeasible) {
  const SystemInputs inputs = test_inputs(8001);
  EXPECT_THROW(static_cp(inputs, kLayout), base::InfeasibleError);
  EXPECT_THROW(make_byte_scale(inputs, ByteScaleStep::kLanes, kLayout), base::InfeasibleError);
}

}  // namespace
}  // namespace sluice::study
