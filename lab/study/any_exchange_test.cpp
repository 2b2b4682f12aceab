#include "study/any_exchange.h"

#include <gtest/gtest.h>

#include "study/megatron.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

TEST(AnyExchange, NeverMakesAStepLonger) {
  const SystemInputs inputs = test_inputs();
  const published::StaticStrategy choice{
      .scheme = {.cp = 8}, .pipelines = 1, .micro_batch_tokens = 1000, .dealing = published::Dealing::kTurns};
  const auto rings = make_megatron(inputs, choice);
  const auto any = with_any_exchange(make_megatron(inputs, choice), inputs.world_size);
  bool some_choose_heads = false;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto sequences = test_sequences(test_lengths(seed, inputs.context_length));
    const SystemStep step = any->step(static_cast<int64_t>(seed), sequences);
    expect_runs_all(step, sequences, any->cost(), inputs.world_size);
    EXPECT_LE(step.plan.estimated_ns, rings->step(static_cast<int64_t>(seed), sequences).plan.estimated_ns);
    for (const strategy::PipelineMicroBatch& micro_batch : step.plan.pipelines.front().micro_batches)
      some_choose_heads |= micro_batch.exchange != strategy::Exchange::kRing;
  }
  EXPECT_TRUE(some_choose_heads);
}

}  // namespace
}  // namespace sluice::study
