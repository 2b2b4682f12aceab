#include "study/hotspa.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

TEST(HotSpa, EverySequenceRunsInOneOfItsIntervals) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_hotspa(inputs);
  const auto sequences = test_sequences(test_lengths(3, inputs.context_length));
  const SystemStep step = system->step(4, sequences);
  strategy::validate(step.plan, inputs.world_size);
  EXPECT_EQ(step.plan.step, 4);
  // The last strategy's sequences are the shortest; the others ran before.
  int64_t longest = 0;
  for (const strategy::Sequence& sequence : step.plan.sequences) {
    longest = std::max(longest, sequence.length_tokens);
  }
  int64_t shorter = 0;
  for (const strategy::Sequence& sequence : sequences) shorter += sequence.length_tokens <= longest;
  EXPECT_EQ(shorter, static_cast<int64_t>(step.plan.sequences.size()));
  EXPECT_EQ(step.before_ns > 0, step.plan.sequences.size() < sequences.size());
  EXPECT_LE(step.switch_ns, step.before_ns);
}

TEST(HotSpa, GivenPhasesTakeTheirLengths) {
  const SystemInputs inputs = test_inputs();
  const auto phase = [](int64_t longest, const strategy::Scheme& scheme) {
    return HotSpaPhase{longest,
                       {.scheme = scheme,
                        .pipelines = 8 / scheme.ranks(),
                        .micro_batch_tokens = longest,
                        .dealing = published::Dealing::kTurns}};
  };
  const auto system = make_hotspa(inputs, {phase(inputs.context_length, {.tp = 4}), phase(1000, {.tp = 2})});
  const SystemStep step = system->step(0, test_sequences({1200, 900, 50, 1001}));
  EXPECT_EQ(to_text(step.plan.strategy()), "4x<2,1,1>");
  EXPECT_EQ(step.plan.sequences.size(), 2u);
  EXPECT_GT(step.switch_ns, 0);
}

TEST(HotSpa, SequencesOfOneIntervalNeedNoSwitch) {
  const SystemInputs inputs = test_inputs();
  const SystemStep step = make_hotspa(inputs)->step(0, test_sequences({100, 200, 300}));
  EXPECT_EQ(step.before_ns, 0);
  EXPECT_EQ(step.plan.sequences.size(), 3u);
}

TEST(HotSpa, SequenceBeyondTheContextIsInfeasible) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_hotspa(inputs);
  EXPECT_THROW(system->step(0, test_sequences({inputs.context_length + 1})), base::InfeasibleError);
  EXPECT_THROW(make_hotspa(test_inputs(100'000'000)), base::InfeasibleError);
}

TEST(HotSpa, SwitchMovesWhatARankDoesNotHold) {
  const SystemInputs inputs = test_inputs();
  const cost::CostModel::Options& options = inputs.cost.options();
  const model::ParameterTable table = model::parameter_table(options.shape);
  const auto two = strategy::parse_strategy("4x<2,1,1>", 8);
  const auto one = strategy::parse_strategy("8x<1,1,1>", 8);
  EXPECT_EQ(switch_ns(table, two, two, 8, inputs.cost), 0);
  // From replicas to halves nothing moves; back, each rank of a node gets the other half from its node.
  EXPECT_EQ(switch_ns(table, one, two, 8, inputs.cost), 0);
  const int64_t all = options.shape.parameters();
  const int64_t half_bytes = all / 2 * (options.memory.element_bytes + options.memory.accumulator_bytes);
  const int64_t ns = switch_ns(table, two, one, 8, inputs.cost);
  EXPECT_NEAR(static_cast<double>(ns), static_cast<double>(options.intra.of_bytes(half_bytes)),
              0.02 * static_cast<double>(ns));
}

}  // namespace
}  // namespace sluice::study
