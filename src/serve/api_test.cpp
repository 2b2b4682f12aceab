// Requests for text as JSON: what is read from them, and how each mistake is named.
#include "serve/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/request_fields.h"
#include "serve/test_model.h"

namespace sluice::serve {
namespace {

using base::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

const ByteTokenizer kBytes, kNoChats(ByteTokenizer::Chats::kNone);

RequestReader completion_reader() {
  return {.tokenizer = &kBytes,
          .model = "mine",
          .vocabulary = kVocabulary,
          .context_length = 100,
          .tool_format = nullptr,
          .limits = {.json_entries = 400, .prompts = 6, .stops = 3, .stop_bytes = 5, .logit_biases = 2},
          .adapters = {"law", "code"}};
}

CompletionRequest read_completion(Json body) {
  if (!body.contains("prompt")) body["prompt"] = "a";
  return completion_reader().read(body.dump(), Endpoint::kCompletions, /*seed=*/7);
}

Json chat_with(Json body) {
  if (!body.contains("messages")) body["messages"] = Json::array({{{"role", "user"}, {"content", "hi"}}});
  return body;
}

CompletionRequest read_chat(const Json& body) {
  return completion_reader().read(chat_with(body).dump(), Endpoint::kChat, 7);
}

// The field that is refused, and why.
struct Refused {
  std::string field, why;
};
template <typename Read>
Refused refused(Read read) {
  try {
    read();
  } catch (const http::FieldError& error) {
    return {error.field(), error.what()};
  } catch (const base::InputError& error) {
    return {"", error.what()};
  }
  return {"", "nothing"};
}
void expect_refused(const Refused& told, const std::string& field, const std::string& why) {
  EXPECT_EQ(told.field, field) << told.why;
  EXPECT_THAT(told.why, HasSubstr(why));
}
void expect_completion_refused(const Json& body, const std::string& field, const std::string& why) {
  expect_refused(refused([&] { read_completion(body); }), field, why);
}
void expect_chat_refused(const Json& body, const std::string& field, const std::string& why) {
  expect_refused(refused([&] { read_chat(body); }), field, why);
}

TEST(CompletionApi, PromptsAreTextsOrIdsOneOrSeveral) {
  const auto prompts = [](const Json& prompt) { return read_completion({{"prompt", prompt}}).prompts; };
  EXPECT_THAT(prompts("ab"), ElementsAre(ElementsAre(kBeginToken, 'a', 'b')));
  EXPECT_THAT(prompts({"a", "\u00e9"}),
              ElementsAre(ElementsAre(kBeginToken, 'a'), ElementsAre(kBeginToken, 0xC3, 0xA9)));
  EXPECT_THAT(prompts({1, 2}), ElementsAre(ElementsAre(1, 2)));  // ids are taken as they are
  EXPECT_THAT(prompts(Json::array({{1}, {2, 3}})), ElementsAre(ElementsAre(1), ElementsAre(2, 3)));
  EXPECT_THAT(prompts(Json::array({{1}, "a"})), ElementsAre(ElementsAre(1), ElementsAre(kBeginToken, 'a')));
  EXPECT_THAT(prompts(""), ElementsAre(ElementsAre(kBeginToken)));
}

TEST(CompletionApi, WrongPromptsAreNamed) {
  const auto expect = [](const Json& prompt, const std::string& why) {
    expect_completion_refused({{"prompt", prompt}}, "prompt", why);
  };
  expect(nullptr, "prompt is missing: give a text");
  expect(Json::array(), "a prompt has no token: give it some text");
  expect(Json::array({Json::array()}), "a prompt has no token");
  expect({"a", 5}, "prompt has 5: give a text, or a list of token ids");
  expect({5, "a"}, "prompt has \"a\": give ids from 0 to");
  expect({kVocabulary}, "give ids from 0 to 263");
  expect({-1}, "prompt has -1");
  expect({1.5}, "prompt has 1.5");
  expect(true, "prompt is true: give a text, or a list");
  expect(Json::array({"1", "2", "3", "4", "5", "6", "7"}),
         "more than 6 prompts: send them in several requests");
}

TEST(CompletionApi, ATextThatCannotFitIsRefusedBeforeItIsTokenized) {
  class Untouched final : public corpus::Tokenizer {
    std::vector<std::vector<int32_t>> encode_all(std::span<const std::string>) const override {
      ADD_FAILURE() << "tokenizing takes seconds per megabyte";
      return {{}};
    }
    std::vector<std::string> decode_all(std::span<const std::vector<int32_t>>) const override { return {}; }
    bool has_chats() const override { return true; }
  };
  const Untouched tokenizer;
  RequestReader reader = completion_reader();
  reader.tokenizer = &tokenizer;
  const std::string text(128 * 1024 + 1, 'a');
  const auto read = [&](const Json& body, Endpoint endpoint) {
    return refused([&] { reader.read(body.dump(), endpoint, 0); });
  };
  expect_refused(read({{"prompt", text}}, Endpoint::kCompletions), "prompt",
                 "has 131073 bytes, more than the 100 tokens of this server's context can be: give less");
  expect_refused(
      read(chat_with({{"messages", Json::array({{{"role", "user"}, {"content", text}}})}}), Endpoint::kChat),
      "messages", "give less");
}

TEST(CompletionApi, SamplingIsWhatTheFieldsSay) {
  const CompletionRequest plain = read_completion(Json::object());
  EXPECT_EQ(plain.sampling.temperature, 1.0);
  EXPECT_EQ(plain.sampling.top_p, 1.0);
  EXPECT_EQ(plain.sampling.top_k, 0);
  EXPECT_EQ(plain.sampling.seed, 7U) << "the server's own seed, where none is given";
  EXPECT_EQ(plain.max_tokens, std::nullopt);
  EXPECT_EQ(plain.samples, 1);
  EXPECT_FALSE(plain.stream);
  const CompletionRequest full = read_completion({{"temperature", 0.5},
                                                  {"top_p", 0.9},
                                                  {"top_k", 40},
                                                  {"min_p", 0.1},
                                                  {"seed", 9},
                                                  {"presence_penalty", 1},
                                                  {"frequency_penalty", -1},
                                                  {"repetition_penalty", 1.2},
                                                  {"max_tokens", 12},
                                                  {"n", 3},
                                                  {"best_of", 3}});
  EXPECT_EQ(full.sampling.temperature, 0.5);
  EXPECT_EQ(full.sampling.top_p, 0.9);
  EXPECT_EQ(full.sampling.top_k, 40);
  EXPECT_EQ(full.sampling.min_p, 0.1);
  EXPECT_EQ(full.sampling.seed, 9U);
  EXPECT_EQ(full.sampling.presence_penalty, 1);
  EXPECT_EQ(full.sampling.frequency_penalty, -1);
  EXPECT_EQ(full.sampling.repetition_penalty, 1.2);
  EXPECT_EQ(full.max_tokens, 12);
  EXPECT_EQ(full.samples, 3);
  EXPECT_EQ(read_completion({{"top_k", -1}}).sampling.top_k, 0) << "vLLM's word for no bound";
  EXPECT_EQ(read_completion({{"temperature", nullptr}}).sampling.temperature, 1.0);
}

TEST(CompletionApi, NumbersOutOfRangeAreRefusedWithTheirRange) {
  expect_completion_refused({{"temperature", -0.1}}, "temperature", "temperature is -0.1");
  expect_completion_refused({{"top_p", 0}}, "top_p", "top_p is 0");
  expect_completion_refused({{"top_k", -2}}, "top_k", "top_k is -2");
  expect_completion_refused({{"min_p", 1.5}}, "min_p", "min_p is 1.5");
  expect_completion_refused({{"presence_penalty", 2.5}}, "presence_penalty", "presence_penalty is 2.5");
  expect_completion_refused({{"frequency_penalty", -3}}, "frequency_penalty", "frequency_penalty is -3");
  expect_completion_refused({{"repetition_penalty", 0}}, "repetition_penalty", "repetition_penalty is 0");
  expect_chat_refused({{"temperature", -0.1}}, "temperature", "temperature is -0.1");
  expect_completion_refused({{"n", 0}}, "n", "n is 0");
  expect_completion_refused({{"n", 129}}, "n", "n is 129");
  expect_completion_refused({{"n", int64_t{1} << 40}}, "n", "n is 1099511627776");
  expect_completion_refused({{"max_tokens", -1}}, "max_tokens", "max_tokens is -1");
  expect_completion_refused({{"n", 4}, {"best_of", 5}}, "best_of", "best_of is 5 and n is 4: give the same");
  expect_completion_refused({{"prompt", {"a", "b"}}, {"n", 4}}, "n", "make 8 texts: ask for 6 or fewer");
  expect_chat_refused({{"max_tokens", 0}}, "max_tokens", "max_tokens is 0");
}

TEST(CompletionApi, FieldsOfAnotherKindAndUnknownOnesAreRefusedByName) {
  expect_completion_refused({{"temperature", "hot"}}, "temperature", "is \"hot\": give a number");
  expect_completion_refused({{"max_tokens", 1.5}}, "max_tokens", "give a whole number");
  expect_completion_refused({{"stream", 1}}, "stream", "give true or false");
  expect_completion_refused({{"stop", 5}}, "stop", "give a text, or a list");
  expect_completion_refused({{"temprature", 0.5}}, "temprature", "does not know here: leave it out");
  expect_completion_refused({{"suffix", "x"}}, "suffix", "does not follow: leave it out");
  expect_completion_refused({{"top_logprobs", 3}}, "top_logprobs", "does not know here");  // a chat's field
  expect_chat_refused({{"echo", true}}, "echo", "does not know here");
  expect_chat_refused({{"response_format", {{"type", "json_object"}}}}, "response_format", "does not follow");
  // Values that change nothing are accepted, of fields that are not followed, too.
  read_completion(
      {{"suffix", ""}, {"user", "me"}, {"length_penalty", 1.0}, {"unknown", nullptr}, {"best_of", 1}});
  read_chat({{"response_format", {{"type", "text"}}},
             {"store", true},
             {"metadata", {{"a", "b"}}},
             {"unknown", false}});
}

TEST(CompletionApi, BodiesThatAreNoObjectOrHaveTooManyValuesAreRefused) {
  const auto told = [](const std::string& body) {
    return refused([&] { completion_reader().read(body, Endpoint::kCompletions, 0); }).why;
  };
  EXPECT_THAT(told("{\"prompt\": "), HasSubstr("the request's body"));
  EXPECT_THAT(told("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(told(""), HasSubstr("the request's body"));
  std::string many = "{\"prompt\": [1";
  for (int i = 0; i < 500; ++i) many += ",1";
  EXPECT_THAT(told(many + "]}"), HasSubstr("more than 400 JSON values: send less at once"));
  EXPECT_THAT(told("{\"prompt\": \"" + std::string(500, ',') + "\"}"), testing::Eq("nothing"))
      << "commas of a text";
}

TEST(CompletionApi, StopsAreTextsOrTokensAndBounded) {
  EXPECT_THAT(read_completion({{"stop", "x"}}).stops, ElementsAre("x"));
  EXPECT_THAT(read_completion({{"stop", {"x", "\u00e9"}}}).stops, ElementsAre("x", "\u00e9"));
  EXPECT_THAT(read_completion({{"stop", nullptr}}).stops, IsEmpty());
  EXPECT_THAT(read_completion({{"stop", Json::array()}}).stops, IsEmpty());
  EXPECT_THAT(read_completion({{"stop_token_ids", {1, 5}}}).stop_tokens, ElementsAre(1, 5));
  expect_completion_refused({{"stop", ""}}, "stop", "stop is \"\": give a text");
  expect_completion_refused({{"stop", {"x", 5}}}, "stop", "give a text, or a list of them");
  expect_completion_refused({{"stop", "123456"}}, "stop", "more than 5 bytes: give a shorter one");
  expect_completion_refused({{"stop", {"1", "2", "3", "4"}}}, "stop", "more than 3 texts: give fewer");
  expect_completion_refused({{"stop_token_ids", {1, 2, 3, 4}}}, "stop_token_ids", "more than 3 tokens");
  expect_completion_refused({{"stop_token_ids", {264}}}, "stop_token_ids", "give ids from 0 to 263");
}

TEST(CompletionApi, LogProbabilitiesAreAskedByANumberOrByTwoKeys) {
  const CompletionRequest none = read_completion({{"logprobs", 0}});
  EXPECT_TRUE(none.logprobs);  // the generated token alone
  EXPECT_EQ(none.alternatives, 0);
  EXPECT_EQ(read_completion({{"logprobs", 5}}).alternatives, 5);
  EXPECT_FALSE(read_completion(Json::object()).logprobs);
  const CompletionRequest chat = read_chat({{"logprobs", true}, {"top_logprobs", 3}});
  EXPECT_TRUE(chat.logprobs);
  EXPECT_EQ(chat.alternatives, 3);
  expect_completion_refused({{"logprobs", 21}}, "logprobs", "logprobs is 21");
  expect_chat_refused({{"top_logprobs", 3}}, "top_logprobs",
                      "top_logprobs is 3, but logprobs is not true: set it, too");
  expect_chat_refused({{"logprobs", true}, {"top_logprobs", -1}}, "top_logprobs", "top_logprobs is -1");
}

TEST(CompletionApi, BiasesAreSortedByTokenAndBounded) {
  EXPECT_THAT(read_completion({{"logit_bias", {{"99", 1.5}, {"3", -100}}}}).sampling.logit_bias,
              ElementsAre(Pair(3, -100.0), Pair(99, 1.5)));
  expect_completion_refused({{"logit_bias", {{"264", 1}}}}, "logit_bias",
                            "the token \"264\": give ids from 0 to 263");
  expect_completion_refused({{"logit_bias", {{"x", 1}}}}, "logit_bias", "the token \"x\"");
  expect_completion_refused({{"logit_bias", {{"3", 101}}}}, "logit_bias",
                            "of 3 is 101: give a number from -100");
  expect_completion_refused({{"logit_bias", {{"3", "up"}}}}, "logit_bias", "of 3 is \"up\"");
  expect_completion_refused({{"logit_bias", {{"1", 1}, {"2", 1}, {"3", 1}}}}, "logit_bias",
                            "has 3 tokens: give 2 or fewer");
}

TEST(CompletionApi, StreamsHaveTheirOptionsAndNoScores) {
  EXPECT_TRUE(
      read_completion({{"stream", true}, {"stream_options", {{"include_usage", true}}}}).stream_usage);
  EXPECT_FALSE(read_completion({{"stream", true}, {"stream_options", nullptr}}).stream_usage);
  read_completion({{"stream_options", {{"include_usage", false}}}});
  expect_completion_refused({{"stream_options", {{"include_usage", true}}}}, "stream_options",
                            "but stream is not true");
  expect_completion_refused({{"stream", true}, {"stream_options", {{"include_usage", 1}}}}, "stream_options",
                            "stream_options: include_usage is 1: give true or false");
  expect_completion_refused({{"stream", true}, {"echo", true}}, "echo", "leave one out");
  expect_completion_refused({{"stream", true}, {"max_tokens", 0}}, "max_tokens", "leave one out");
  expect_completion_refused({{"stream", true}, {"logprobs", 1}}, "logprobs", "leave one out");
}

TEST(CompletionApi, ModelsAndAdaptersAreNamed) {
  EXPECT_EQ(read_completion({{"model", "mine"}}).adapter, -1);
  EXPECT_EQ(read_completion(Json::object()).adapter, -1);
  EXPECT_EQ(read_completion({{"model", "code"}}).adapter, 1);
  EXPECT_THROW(read_completion({{"model", "other"}}), UnknownModel);
  expect_completion_refused(
      {{"model", "other"}}, "model",
      "'other' is not served here: ask for 'mine' or its adapters 'law', 'code', or leave model");
}

TEST(ChatApi, MessagesGoThroughTheTemplateWithTheFieldsThatItReads) {
  EXPECT_EQ(read_chat(Json::object()).prompts.front(), ids_of("user:hi\nassistant:"));
  class Seen final : public ByteTokenizer {
   public:
    std::vector<corpus::EncodedChat> encode_prompts(std::span<const std::string> chats) const override {
      seen = Json::parse(chats.front());
      return ByteTokenizer::encode_prompts(chats);
    }
    mutable Json seen;
  };
  const Seen tokenizer;
  RequestReader reader = completion_reader();
  reader.tokenizer = &tokenizer;
  reader.tool_format = tool_format_named("hermes");
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "look"}}}}});
  Json body =
      chat_with({{"tools", tools}, {"documents", {"d"}}, {"reasoning_effort", "low"}, {"user", "me"}});
  EXPECT_THAT(reader.read(body.dump(), Endpoint::kChat, 0).tools, ElementsAre("look"));
  EXPECT_EQ(tokenizer.seen, Json({{"messages", body["messages"]},
                                  {"tools", tools},
                                  {"documents", {"d"}},
                                  {"reasoning_effort", "low"}}));
  body["tool_choice"] = "none";
  EXPECT_THAT(reader.read(body.dump(), Endpoint::kChat, 0).tools, IsEmpty());
  EXPECT_FALSE(tokenizer.seen.contains("tools")) << "the model must not hear of tools that it may not call";
}

TEST(ChatApi, ConversationsThatCannotBeRenderedAreRefused) {
  expect_chat_refused({{"messages", Json::array()}}, "messages", "messages are missing: give a list of them");
  expect_chat_refused({{"messages", Json::array({{{"content", "hi"}}})}}, "messages",
                      "messages[0] has no role");
  expect_chat_refused({{"messages", "hi"}}, "messages", "messages is \"hi\": give a list");
  RequestReader reader = completion_reader();
  reader.tokenizer = &kNoChats;
  expect_refused(refused([&] { reader.read(chat_with(Json::object()).dump(), Endpoint::kChat, 0); }), "",
                 "no chat template: ask for completions instead");
}

TEST(ChatApi, TheNewerNameOfTheMaximumWins) {
  EXPECT_EQ(read_chat({{"max_tokens", 5}, {"max_completion_tokens", 9}}).max_tokens, 9);
  EXPECT_EQ(read_chat({{"max_completion_tokens", 4}}).max_tokens, 4);
  expect_completion_refused({{"max_completion_tokens", 4}}, "max_completion_tokens", "does not know here");
}

TEST(ChatApi, ToolsNeedAFormatOfCallsAndNames) {
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "look"}}}}});
  expect_chat_refused({{"tools", tools}}, "tools", "start the server with --tool-format, one of glm, ");
  EXPECT_THAT(read_chat({{"tools", tools}, {"tool_choice", "none"}}).tools, IsEmpty());
  EXPECT_THAT(read_chat({{"tools", Json::array()}}).tools, IsEmpty());
  expect_chat_refused({{"tool_choice", "required"}}, "tool_choice",
                      "cannot ensure: give \"auto\" or \"none\"");
  expect_chat_refused({{"tool_choice", {{"type", "function"}}}}, "tool_choice", "cannot ensure");
  RequestReader reader = completion_reader();
  reader.tool_format = tool_format_named("hermes");
  const auto told = [&](const Json& tool) {
    return refused([&] {
      reader.read(chat_with({{"tools", Json::array({tool})}}).dump(), Endpoint::kChat, 0);
    });
  };
  for (const Json& wrong :
       {Json("look"), Json({{"function", "look"}}), Json({{"function", {{"name", 5}}}}), Json(nullptr)})
    expect_refused(told(wrong), "tools", "give {\"type\": \"function\", \"function\": {\"name\": …}}");
  const Json one = chat_with({{"tools", tools}, {"parallel_tool_calls", false}});
  EXPECT_FALSE(reader.read(one.dump(), Endpoint::kChat, 0).parallel_tool_calls);
}

}  // namespace
}  // namespace sluice::serve
