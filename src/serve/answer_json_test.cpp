// Responses of text as JSON, from outputs that are made here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "serve/api.h"
#include "serve/test_model.h"

namespace sluice::serve {
namespace {

using base::Json;

const ByteTokenizer kText;
const AnswerHead kHead{.id = "cmpl-3", .model = "mine", .fingerprint = "fp", .created = 9};

// An output of a text's bytes, each with the log-probability −1.
generate::Output output_of(const std::vector<int64_t>& tokens) {
  return {.tokens = tokens, .log_probabilities = std::vector<double>(tokens.size(), -1)};
}

// The response's only choice.
Json choice_json(const CompletionRequest& request, const generate::Output& output, const std::string& text,
                 std::vector<ToolCall> calls = {}) {
  const Choice choice{.index = 0,
                      .text = text,
                      .output = &output,
                      .prompt = &request.prompts.front(),
                      .finished = true,
                      .calls = std::move(calls)};
  return response_json(request, kHead, {choice}, kText).at("choices").at(0);
}

TEST(AnswerJson, TokensOfAStopStringHaveNoLogProbabilities) {
  const CompletionRequest request{.prompts = {ids_of("x")}, .logprobs = true};
  generate::Output output = output_of(ids_of("abcd"));
  const Json all = choice_json(request, output, "abcd").at("logprobs");
  EXPECT_EQ(all.at("tokens"), Json({"a", "b", "c", "d"}));
  // "cd" was the stop.
  const Json shown = choice_json(request, output, "ab").at("logprobs");
  EXPECT_EQ(shown.at("tokens"), Json({"a", "b"}));
  EXPECT_EQ(shown.at("token_logprobs"), Json({-1.0, -1.0}));
  // The stop begins within a token, which stays.
  output = output_of({kFirstWord + 4});
  EXPECT_EQ(choice_json(request, output, "one").at("logprobs").at("tokens"), Json::array({"one two"}));
}

TEST(AnswerJson, AlternativesThatLookAlikeAreNamedByTheirIds) {
  const CompletionRequest request{.prompts = {ids_of("x")}, .logprobs = true, .alternatives = 3};
  generate::Output output = output_of(ids_of("a"));
  output.alternatives = {{{'a', -1}, {0xC3, -2}, {0xA9, -3}, {kEndToken, -4}}};
  const Json told = choice_json(request, output, "a").at("logprobs").at("top_logprobs").at(0);
  EXPECT_EQ(told, Json({{"a", -1.0}, {"\uFFFD", -2.0}, {"token_id:169", -3.0}, {"token_id:257", -4.0}}));
}

TEST(AnswerJson, ACallStandsInPlaceOfTheContent) {
  CompletionRequest request{.endpoint = Endpoint::kChat, .prompts = {ids_of("x")}};
  const generate::Output output = output_of(ids_of("a"));
  const Json alone = choice_json(request, output, "", {{"look", "{}"}, {"add", R"({"a":1})"}});
  EXPECT_EQ(alone.at("finish_reason"), "tool_calls");
  EXPECT_TRUE(alone.at("message").at("content").is_null());
  const Json& calls = alone.at("message").at("tool_calls");
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls.at(1).at("function").at("arguments"), R"({"a":1})");
  EXPECT_NE(calls.at(0).at("id"), calls.at(1).at("id"));
  const Json behind = choice_json(request, output, "Let me see.", {{"look", "{}"}});
  EXPECT_EQ(behind.at("message").at("content"), "Let me see.");
  EXPECT_FALSE(choice_json(request, output, "a").at("message").contains("tool_calls"));
}

TEST(AnswerJson, FinishReasonsAreOpenAIs) {
  const CompletionRequest request{.prompts = {ids_of("x")}};
  generate::Output output = output_of(ids_of("a"));
  EXPECT_EQ(choice_json(request, output, "a").at("finish_reason"), "length");
  output.finish_reason = true;
  EXPECT_EQ(choice_json(request, output, "a").at("finish_reason"), "stop");
}

TEST(AnswerJson, UsageCountsEveryPromptOnceAndEverySample) {
  const CompletionRequest request{.prompts = {ids_of("abc"), ids_of("x")}, .samples = 2};
  const generate::Output output = output_of(ids_of("de"));
  std::vector<Choice> choices;
  for (int i = 0; i < 4; ++i)
    choices.push_back({.index = i, .text = "de", .output = &output, .prompt = &request.prompts[0]});
  EXPECT_EQ(response_json(request, kHead, choices, kText).at("usage"),
            Json({{"prompt_tokens", 4}, {"completion_tokens", 8}, {"total_tokens", 12}}));
}

TEST(AnswerJson, ChunksHaveTheNewTextAndTheRoleOnce) {
  CompletionRequest request{.endpoint = Endpoint::kChat, .prompts = {ids_of("x")}, .stream = true};
  const generate::Output output = output_of(ids_of("a"));
  Choice choice{.index = 2, .text = "a", .output = &output, .prompt = &request.prompts[0]};
  const Json first = chunk_json(request, kHead, choice, /*first=*/true);
  EXPECT_EQ(first.at("choices").at(0), Json({{"index", 2},
                                             {"logprobs", nullptr},
                                             {"finish_reason", nullptr},
                                             {"delta", {{"role", "assistant"}, {"content", "a"}}}}));
  EXPECT_FALSE(first.contains("usage"));
  choice.text = "";
  choice.finished = true;
  request.stream_usage = true;
  const Json last = chunk_json(request, kHead, choice, /*first=*/false);
  EXPECT_EQ(last.at("choices").at(0).at("delta"), Json::object());
  EXPECT_EQ(last.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_TRUE(last.at("usage").is_null());
  request.endpoint = Endpoint::kCompletions;
  EXPECT_EQ(chunk_json(request, kHead, choice, false).at("object"), "text_completion");
}

TEST(AnswerJson, ErrorsNameFieldAndCodeOrNull) {
  EXPECT_EQ(error_json("no", "server_error"),
            Json({{"error",
                   {{"message", "no"}, {"type", "server_error"}, {"param", nullptr}, {"code", nullptr}}}}));
  const Json told = error_json("no", "invalid_request_error", "n", "out").at("error");
  EXPECT_EQ(told.at("param"), "n");
  EXPECT_EQ(told.at("code"), "out");
}

}  // namespace
}  // namespace sluice::serve
