#include "session/prompt_responses.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "cost/analytic.h"
#include "model/test_outline.h"

namespace sluice::session {
namespace {

constexpr int kRolloutRanks = 4;

plan::Planner planner_with(const std::vector<std::string>& texts) {
  const model::Outline outline = model::outline_of_2_heads();
  constexpr int kDegrees[] = {1, 2};
  const cost::AnalyticMemory memory{.device_bytes = 64 << 20, .logits_chunk_bytes = 1 << 16};
  plan::PlannerOptions options{.world_size = kRolloutRanks};
  for (const std::string& text : texts)
    options.candidates.push_back(strategy::parse_strategy(text, kRolloutRanks));
  return {std::move(options),
          cost::CostModel(cost::analytic_options(outline, cost::Rates{}, memory, kDegrees, kRolloutRanks))};
}

int64_t estimated_ns(const plan::Planner& planner, const std::vector<strategy::Sequence>& sequences) {
  return planner.plan(0, sequences).estimated_ns;
}

// Sharing may be requested or left to the model; a request is refused by name if results would change.
TEST(Answers, ShareTheirPromptWhereTheModelAllowsIt) {
  model::Outline dense = model::test_outline(), recurrent = dense, corrected = dense;
  recurrent.recurrent = {
      .key_heads = 2, .value_heads = 2, .key_width = 8, .value_width = 8, .convolution = 4};
  recurrent.block_types = {{.recurrent = true}, {}, {}, {}};
  corrected.experts = {.count = 4, .per_token = 2, .hidden = 16};
  corrected.experts.corrected = true;
  config::RunConfig config;
  EXPECT_TRUE(shares_prompts(config, dense));
  EXPECT_FALSE(shares_prompts(config, recurrent));
  EXPECT_FALSE(shares_prompts(config, corrected));
  config.rl.share_prompts = false;
  EXPECT_FALSE(shares_prompts(config, dense));
  EXPECT_FALSE(shares_prompts(config, recurrent));
  config.rl.share_prompts = true;
  EXPECT_TRUE(shares_prompts(config, dense));
  for (const model::Outline& outline : {recurrent, corrected}) {
    try {
      shares_prompts(config, outline);
      ADD_FAILURE() << "what has no effect is accepted";
    } catch (const base::InputError& error) {
      EXPECT_NE(std::string(error.what()).find("rl.share_prompts is true, but "), std::string::npos);
    }
  }
  config.train.moe_router_bias_update_rate = 0;
  EXPECT_TRUE(shares_prompts(config, corrected));
}

TEST(Answers, ArePutTogetherInOrder) {
  const std::vector<PromptResponses> answers = {{5, {9, 6, 7}}, {1, {4, 3}}, {8, {10}}};
  const std::vector<strategy::Sequence> apart = response_sequences(answers, 1);
  ASSERT_EQ(apart.size(), 6u);
  for (size_t i = 0; i < apart.size(); ++i) EXPECT_EQ(apart[i].document, static_cast<int64_t>(i));
  EXPECT_EQ(apart[1].length_tokens, 6);
  EXPECT_EQ(apart[1].loss_tokens, 1);
  const std::vector<strategy::Sequence> together = response_sequences(answers, 8);
  ASSERT_EQ(together.size(), 4u);  // each response owns its prompt if that has one token
  EXPECT_EQ(together[0].length_tokens, 4 + 5 + 2 + 3);
  EXPECT_EQ(together[0].branches, (std::vector<int64_t>{5, 2, 3}));
  EXPECT_EQ(together[0].prefix_tokens(), 4);
  EXPECT_EQ(together[0].loss_tokens, 4 + 1 + 2);
  EXPECT_EQ(together[1].document, 3);
  EXPECT_TRUE(together[3].branches.empty());
  EXPECT_EQ(shared_tokens(together), 8);
  const std::vector<strategy::Sequence> pairs = response_sequences(answers, 2);
  EXPECT_EQ(pairs[0].branches.size() + pairs[1].branches.size(), 2u);  // one and two: one stands alone
  EXPECT_EQ(shared_tokens(pairs), 4);
}

// For any batch the choice ends no later than responses one by one, or all together.
TEST(Answers, TheChoiceIsTheSoonest) {
  const plan::Planner planner = planner_with({"4x<1,1,1>", "2x<2,1,1>", "<1,1,4>", "<1,2,2>"});
  base::Rng rng(3);
  int64_t shared = 0, apart = 0;
  for (int round = 0; round < 30; ++round) {
    std::vector<PromptResponses> answers(static_cast<size_t>(rng.between(1, 12)));
    for (PromptResponses& each : answers) {
      each.prompt_tokens = rng.between(1, round % 2 == 0 ? 40 : 900);
      for (int64_t i = rng.between(1, 8); i > 0; --i)
        each.lengths.push_back(each.prompt_tokens + rng.between(1, 300));
    }
    const auto chosen = best_response_sequences(planner, 0, answers);
    const int64_t chosen_ns = estimated_ns(planner, chosen);
    EXPECT_LE(chosen_ns, estimated_ns(planner, response_sequences(answers, 1)));
    EXPECT_LE(chosen_ns, estimated_ns(planner, response_sequences(answers, 8)));
    (shared_tokens(chosen) > 0 ? shared : apart) += 1;
  }
  EXPECT_GT(shared, 0);
  EXPECT_GT(apart, 0);
}

TEST(Answers, ThatNobodyHoldsTogetherAreTakenApart) {
  const plan::Planner planner = planner_with({"4x<1,1,1>"});
  const int64_t longest = planner.max_len_tokens();
  const std::vector<PromptResponses> answers = {{longest / 4, std::vector<int64_t>(16, longest / 2)}};
  const auto chosen = best_response_sequences(planner, 0, answers);
  for (const strategy::Sequence& sequence : chosen) EXPECT_LE(sequence.length_tokens, longest);
}

}  // namespace
}  // namespace sluice::session
