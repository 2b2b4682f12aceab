#include "plan/proposal.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "plan/planner.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

std::vector<std::vector<int64_t>> samples(int64_t longest) {
  std::vector<std::vector<int64_t>> batches;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    base::Rng rng(seed, 13);
    std::vector<int64_t> batch;
    for (int i = 0; i < 20; ++i) batch.push_back(rng.between(10, 400));
    if (seed % 2 == 0) batch.push_back(longest);
    batches.push_back(batch);
  }
  return batches;
}

std::vector<std::string> texts_of(const std::vector<strategy::Strategy>& strategies) {
  std::vector<std::string> texts;
  for (const strategy::Strategy& strategy : strategies) texts.push_back(to_text(strategy));
  return texts;
}

TEST(Proposal, OneHoldsTheContextAndAllArePlannable) {
  const cost::CostModel cost = test_cost();
  const int64_t context = cost.max_len_tokens({}, 4) + 500;  // not on <1,1,1>
  const ProposalOptions options{
      .world_size = 4, .context_length = context, .sample_batches = samples(context)};
  const std::vector<strategy::Strategy> proposed = strategies_of(propose(options, cost));
  ASSERT_LE(proposed.size(), 8u);
  EXPECT_EQ(texts_of(proposed), texts_of(strategies_of(propose(options, cost))));
  const Planner planner({.world_size = 4, .candidates = proposed}, cost);
  EXPECT_GE(planner.max_len_tokens(), context);
  const Planner first({.world_size = 4, .candidates = {proposed[0]}}, cost);
  EXPECT_GE(first.max_len_tokens(), context);
}

TEST(Proposal, ContextThatNothingHoldsIsInfeasible) {
  const cost::CostModel cost = test_cost();
  try {
    propose({.world_size = 2, .context_length = 10'000'000, .sample_batches = samples(100)}, cost);
    FAIL();
  } catch (const base::InfeasibleError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("context_length 10000000"), std::string::npos) << message;
    EXPECT_NE(message.find("the longest that fits is "), std::string::npos) << message;
  }
}

TEST(Proposal, OneRankHasOneStrategy) {
  const std::vector<strategy::Strategy> proposed = strategies_of(
      propose({.world_size = 1, .context_length = 100, .sample_batches = samples(100)}, test_cost()));
  EXPECT_EQ(texts_of(proposed), (std::vector<std::string>{"1x<1,1,1>"}));
}

}  // namespace
}  // namespace sluice::plan
