#include "rl/episode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"

namespace sluice::rl {
namespace {

TEST(EpisodeTest, AQuestionEndsWhereTheLastAnswerBegins) {
  const std::vector<int32_t> tokens{5, 6, 7, 8, 9, 10, 11};
  const auto question = question_of(tokens, std::vector<uint8_t>{0, 1, 1, 0, 1, 1, 0});
  ASSERT_TRUE(question);
  EXPECT_EQ(question->prompt, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(question->answer, (std::vector<int32_t>{9, 10}));
}

TEST(EpisodeTest, DocumentsWithoutPromptOrAnswerAskNothing) {
  const std::vector<int32_t> tokens{5, 6, 7};
  EXPECT_FALSE(question_of(tokens, std::vector<uint8_t>{0, 0, 0}));
  EXPECT_FALSE(question_of(tokens, std::vector<uint8_t>{1, 1, 0}));
  EXPECT_FALSE(question_of({}, {}));
}

TEST(EpisodeTest, MiniBatchesKeepTheirBits) {
  const Episode episode{.tokens = {1, 2, 3},
                        .prompt_tokens = 2,
                        .reward = 0.7,
                        .advantage = 1.0 / 3,
                        .weight = std::nextafter(1.0, 2.0),
                        .sampled = {-1e-300},
                        .old = {-0.1},
                        .reference = {}};
  const std::vector<MiniBatch> batches{{episode, episode}, {}, {episode}};
  const base::Json json = base::Json::parse(to_json(batches).dump());
  EXPECT_EQ(mini_batches_from_json(json, "a test"), batches);
  EXPECT_EQ(episode.response_tokens(), 1);
}

TEST(EpisodeTest, WhatIsNoMiniBatchIsNamed) {
  EXPECT_THROW(mini_batches_from_json(base::Json::parse(R"([[{"tokens": "x"}]])"), "a test"),
               base::InputError);
}

}  // namespace
}  // namespace sluice::rl
