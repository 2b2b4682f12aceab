#include "study/methods.h"

#include <gtest/gtest.h>

#include "session/candidates.h"
#include "session/planning_inputs.h"

namespace sluice::study {
namespace {

TEST(Methods, PlanTheBatchesThatTheyProposedBy) {
  offer_methods();
  session::PlanningOptions options{
      .gpus = 8, .cluster = "h100x8", .model = "llama-7b", .context_length = 2048, .tokens_per_step = 4000};
  const session::PlanningTask task =
      session::task_of(session::resolve_planning(options, {100, 200, 300, 1000, 20'000, 700, 5000, 50}),
                       {.method = session::proposing_method_named("paper", 1), .max_strategies = 2});
  const plan::Planner planner = session::make_planner(task);
  EXPECT_LE(planner.options().candidates.size(), 2U);
  EXPECT_EQ(planner.options().candidates, plan::strategies_of(session::propose(task)));
  for (const std::vector<int64_t>& lengths : task.sample_batches) {
    std::vector<strategy::Sequence> sequences;
    for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
    EXPECT_GT(planner.plan(0, sequences).estimated_ns, 0);
  }
}

}  // namespace
}  // namespace sluice::study
