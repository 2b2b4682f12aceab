#include "study/methods.h"

#include <gtest/gtest.h>

#include "session/candidates.h"
#include "session/methods.h"
#include "session/planning_inputs.h"

namespace sluice::study {
namespace {

TEST(Methods, PlanTheBatchesThatTheyProposedBy) {
  offer_methods();
  const session::PlanningInputs inputs =
      session::resolve_planning({.gpus = 8,
                                 .cluster = "h100x8",
                                 .model = "llama-7b",
                                 .context_length = 2048,
                                 .tokens_per_step = 4000,
                                 .method = strategy::MethodName::kPaper,
                                 .max_strategies = 2},
                                {100, 200, 300, 1000, 20'000, 700, 5000, 50});
  const plan::PlannerOptions options = session::planner_options(inputs);
  const plan::Planner planner = session::make_planner(options, inputs.cost());
  EXPECT_LE(planner.options().candidates.size(), 2U);
  EXPECT_EQ(planner.options().candidates, plan::strategies_of(session::propose(options, inputs.cost())));
  for (const std::vector<int64_t>& lengths : options.sample_batches) {
    std::vector<strategy::Sequence> sequences;
    for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
    EXPECT_GT(planner.plan(0, sequences).estimated_ns, 0);
  }
}

}  // namespace
}  // namespace sluice::study
