#include "config/proposed.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::config {
namespace {

PlanningInputs inputs() {
  PlanningOptions options{.gpus = 8, .calibration = "a800-7b", .tokens_per_step = 50'000};
  return resolve_planning(options, {100, 200, 300, 1000, 20'000, 700, 5000, 50});
}

TEST(Proposed, PlansTheBatchesThatItWasJudgedBy) {
  for (const Method method : {Method::kOurs, Method::kPaper}) {
    PlanningInputs with_strategies = inputs();
    const Proposed proposed = propose_for(with_strategies, {.method = method, .max_strategies = 2});
    ASSERT_FALSE(proposed.strategies.empty());
    EXPECT_LE(proposed.strategies.size(), 2U);
    with_strategies.strategies = plan::strategies_of(proposed.strategies);
    const plan::Planner planner = planner_of(with_strategies, method);
    for (const std::vector<int64_t>& lengths : proposed.sample_batches) {
      std::vector<strategy::Sequence> sequences;
      for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
      EXPECT_GT(planner.plan(0, sequences).estimated_ns, 0);
    }
  }
}

TEST(Proposed, HasLanesUnlessItIsThePublishedProposal) {
  EXPECT_EQ(max_cp_of({}), kUsualMaxCp);
  EXPECT_EQ(max_cp_of({.max_cp = 2}), 2);
  EXPECT_EQ(max_cp_of({.method = Method::kPaper}), 1);
  EXPECT_THROW(propose_for(inputs(), {.method = Method::kPaper, .max_cp = 2}), base::InputError);
}

TEST(Proposed, RefusesCountsUnderOne) {
  EXPECT_THROW(propose_for(inputs(), {.max_strategies = 0}), base::InputError);
  EXPECT_THROW(propose_for(inputs(), {.max_cp = -1}), base::InputError);
}

}  // namespace
}  // namespace sluice::config
