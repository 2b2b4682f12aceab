#include "study/hotspa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "model/parameter_count.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

// Each strategy's sequences are longer than all of the next one's.
void expect_descending(const SystemStep& step) {
  int64_t shortest = std::numeric_limits<int64_t>::max();
  const auto check = [&](const strategy::StepPlan& plan) {
    const auto [least, most] = std::ranges::minmax(plan.sequences, {}, &strategy::Sequence::length_tokens);
    EXPECT_LT(most.length_tokens, shortest);
    shortest = least.length_tokens;
  };
  for (const strategy::StepPlan& plan : step.earlier) check(plan);
  check(step.plan);
}

TEST(HotSpa, EverySequenceRunsInOneOfItsIntervals) {
  const SystemInputs inputs = test_inputs();
  const auto system = make_hotspa(inputs);
  const auto sequences = test_sequences(test_lengths(3, inputs.context_length));
  const SystemStep step = system->step(4, sequences);
  expect_runs_all(step, sequences, system->cost(), inputs.world_size);
  EXPECT_EQ(step.plan.step, 4);
  int64_t before_ns = step.switch_ns;
  for (const strategy::StepPlan& plan : step.earlier) before_ns += plan.estimated_ns;
  EXPECT_EQ(step.before_ns, before_ns);
  expect_descending(step);
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
  const auto sequences = test_sequences({1200, 900, 50, 1001});
  const SystemStep step = system->step(0, sequences);
  expect_runs_all(step, sequences, system->cost(), inputs.world_size);
  expect_descending(step);
  EXPECT_EQ(to_text(step.plan.strategy()), "4x<2,1,1>");
  ASSERT_EQ(step.earlier.size(), 1u);
  EXPECT_EQ(to_text(step.earlier[0].strategy()), "2x<4,1,1>");
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
  const model::ParameterTable table = model::parameter_table(options.model);
  const auto two = strategy::parse_strategy("4x<2,1,1>", 8);
  const auto one = strategy::parse_strategy("8x<1,1,1>", 8);
  EXPECT_EQ(switch_ns(table, two, two, 8, inputs.cost), 0);
  // From replicas to halves nothing moves; back, each rank of a node gets the other half from its node.
  EXPECT_EQ(switch_ns(table, one, two, 8, inputs.cost), 0);
  const int64_t all = model::parameter_count(options.model);
  const int64_t half_bytes = all / 2 * (options.memory.element_bytes + options.memory.accumulator_bytes);
  const int64_t ns = switch_ns(table, two, one, 8, inputs.cost);
  EXPECT_NEAR(static_cast<double>(ns), static_cast<double>(options.intra.of_bytes(half_bytes)),
              0.02 * static_cast<double>(ns));
}

}  // namespace
}  // namespace sluice::study
