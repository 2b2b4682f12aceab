#include "rl/episode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace sluice::rl {
namespace {

TEST(EpisodeTest, AQuestionEndsWhereTheLastAnswerBegins) {
  const std::vector<int32_t> tokens{5, 6, 7, 8, 9, 10, 11};
  const auto prompt = prompt_of(tokens, std::vector<uint8_t>{0, 1, 1, 0, 1, 1, 0});
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->tokens, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(prompt->ground_truth, (std::vector<int32_t>{9, 10}));
}

TEST(EpisodeTest, DocumentsWithoutPromptOrAnswerAskNothing) {
  const std::vector<int32_t> tokens{5, 6, 7};
  EXPECT_FALSE(prompt_of(tokens, std::vector<uint8_t>{0, 0, 0}));
  EXPECT_FALSE(prompt_of(tokens, std::vector<uint8_t>{1, 1, 0}));
  EXPECT_FALSE(prompt_of({}, {}));
}

TEST(EpisodeTest, RolloutsKeepTheirBits) {
  const Episode episode{.tokens = {1, 2, 3},
                        .prompt_tokens = 2,
                        .reward = 0.7,
                        .advantage = 1.0 / 3,
                        .weight = std::nextafter(1.0, 2.0),
                        .rollout_log_probs = {-1e-300},
                        .old_log_probs = {-0.1},
                        .ref_log_probs = {}};
  Episode valued = episode;
  valued.advantages = {1.0 / 7};
  valued.values = {-1.0 / 9};
  valued.returns = {std::nextafter(2.0, 3.0)};
  const Rollout rollout{.batches = {{episode, valued}, {}, {episode}}, .response_lengths = {{7, 1}, {}}};
  const base::Json json = base::Json::parse(to_json(rollout).dump());
  EXPECT_EQ(rollout_from_json(json, "a test"), rollout);
  EXPECT_EQ(episode.response_tokens(), 1);
}

TEST(EpisodeTest, WhatIsNoRolloutIsNamed) {
  EXPECT_EQ(
      rollout_from_json(base::Json::parse(R"({"said": [[3, 4]], "batches": []})"), "before").response_lengths,
      (std::vector<std::vector<int64_t>>{{3, 4}}));
  for (const char* text :
       {R"([[{"tokens": "x"}]])", R"({"response_lengths": [], "batches": [[{"tokens": "x"}]]})",
        R"({"response_lengths": ["x"], "batches": []})"})
    EXPECT_THROW(rollout_from_json(base::Json::parse(text), "a test"), base::InputError) << text;
}

}  // namespace
}  // namespace sluice::rl
