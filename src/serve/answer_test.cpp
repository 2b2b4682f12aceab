// Requests from their body to their response, through the engine, the pool and the tokenizer, without a
// network.
#include "serve/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "serve/test_serving.h"

namespace sluice::serve {
namespace {

using base::Json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json chat_of(const std::string& content, const Json& more = Json::object()) {
  Json body = {{"messages", Json::array({{{"role", "user"}, {"content", content}}})}};
  body.update(more);
  return body;
}

const Json& choice_of(const Json& response, size_t index = 0) { return response.at("choices").at(index); }

// "é" and an emoji behind x, then "!" and the end.
const std::map<int64_t, int64_t> kLetters = {{'x', 0xC3},  {0xC3, 0xA9}, {0xA9, 0xF0}, {0xF0, 0x9F},
                                             {0x9F, 0x98}, {0x98, 0x80}, {0x80, '!'},  {'!', kEndToken}};
// A call behind w, then the end.
const std::map<int64_t, int64_t> kCall = {{'w', kFirstWord},
                                          {kFirstWord, kFirstWord + 1},
                                          {kFirstWord + 1, kFirstWord + 2},
                                          {kFirstWord + 2, kFirstWord + 3},
                                          {kFirstWord + 3, kEndToken}};
const Json kLook = Json::array({{{"type", "function"}, {"function", {{"name", "look"}}}}});

TEST(Answer, ACompletionIsOneObject) {
  Serving serving;
  const Json told = serving.ask({{"prompt", "abc"}, {"max_tokens", 4}})->json();
  EXPECT_EQ(told.at("object"), "text_completion");
  EXPECT_EQ(told.at("id"), "cmpl-1");
  EXPECT_EQ(told.at("model"), "mine");
  EXPECT_EQ(told.at("system_fingerprint"), "fp");
  EXPECT_EQ(choice_of(told).at("text"), "defg");
  EXPECT_EQ(choice_of(told).at("finish_reason"), "length");
  EXPECT_TRUE(choice_of(told).at("logprobs").is_null());
  EXPECT_EQ(
      told.at("usage"),
      Json({{"prompt_tokens", 4}, {"completion_tokens", 4}, {"total_tokens", 8}}));  // one begins the prompt
}

TEST(Answer, CompletionsHaveSixteenTokensUnlessAskedAndChatsWhatTheContextHolds) {
  Serving serving({.context_length = 60});
  EXPECT_EQ(serving.complete({{"prompt", "a"}}), "bcdefghijklmnopq");
  const Json told = serving.ask(chat_of("hi"), Endpoint::kChat)->json();
  EXPECT_EQ(told.at("usage").at("total_tokens"), 60);
  EXPECT_EQ(choice_of(told).at("message").at("role"), "assistant");
  EXPECT_EQ(choice_of(told).at("finish_reason"), "length");
}

TEST(Answer, ChoicesAreNumberedByPromptThenBySample) {
  Serving serving;
  const Json body = {{"prompt", {"abc", "xyz"}}, {"n", 2}, {"max_tokens", 2}};
  const Json told = serving.ask(body)->json();
  ASSERT_EQ(told.at("choices").size(), 4U);
  const char* const texts[] = {"de", "de", "{|", "{|"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choice_of(told, i).at("index"), i);
    EXPECT_EQ(choice_of(told, i).at("text"), texts[i]);
  }
  EXPECT_EQ(told.at("usage").at("completion_tokens"), 8);
  Json streamed = body;
  streamed["stream"] = true;
  const auto reply = serving.ask(streamed);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(text_of(reply->events(), i), texts[i]) << i;
}

TEST(Answer, AStreamIsTheSameTextInPieces) {
  Serving serving;
  const auto reply = serving.ask({{"prompt", "abc"},
                                  {"max_tokens", 20},
                                  {"stream", true},
                                  {"stream_options", {{"include_usage", true}}}});
  const std::vector<Json> events = reply->events();
  EXPECT_EQ(reply->response().content_type, "text/event-stream");
  EXPECT_TRUE(reply->is_done());
  EXPECT_EQ(text_of(events), serving.complete({{"prompt", "abc"}, {"max_tokens", 20}}));
  ASSERT_GE(events.size(), 2U);
  const Json& last = choice_of(events[events.size() - 2]);
  EXPECT_EQ(last.at("finish_reason"), "length");
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    EXPECT_TRUE(choice_of(events[i]).at("finish_reason").is_null()) << i;
    EXPECT_TRUE(events[i].at("usage").is_null()) << i;
  }
  EXPECT_EQ(events.back().at("choices"), Json::array());
  EXPECT_EQ(events.back().at("usage").at("completion_tokens"), 20);
}

TEST(Answer, AStreamOfAChatBeginsWithItsRole) {
  Serving serving({.next = {{':', 'o'}, {'o', 'k'}, {'k', kEndToken}}});
  const std::vector<Json> events = serving.ask(chat_of("hi", {{"stream", true}}), Endpoint::kChat)->events();
  EXPECT_EQ(text_of(events), "ok");
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].at("object"), "chat.completion.chunk");
    EXPECT_EQ(choice_of(events[i]).at("delta").contains("role"), i == 0) << i;
  }
  EXPECT_EQ(choice_of(events.back()).at("finish_reason"), "stop");
}

// A stop string lies over several tokens, and no byte of it is ever sent.
TEST(Answer, TextsEndInFrontOfAStopString) {
  Serving serving;
  for (const Json& stop : {Json("fg"), Json({"zz", "fg", "fghi"}), Json({"efg!", "fg"})}) {
    Json body = {{"prompt", "abc"}, {"max_tokens", 20}, {"stop", stop}};
    const Json told = serving.ask(body)->json();
    EXPECT_EQ(choice_of(told).at("text"), "de") << stop;
    EXPECT_EQ(choice_of(told).at("finish_reason"), "stop");
    EXPECT_EQ(told.at("usage").at("completion_tokens"), 4) << "the stop's tokens were generated";
    body["stream"] = true;
    const std::vector<Json> events = serving.ask(body)->events();
    EXPECT_EQ(text_of(events), "de") << stop;
    EXPECT_EQ(choice_of(events.back()).at("finish_reason"), "stop");
  }
}

TEST(Answer, TheBeginningOfAStopStringIsSentIfTheTextEndsWithin) {
  Serving serving;
  const auto reply = serving.ask({{"prompt", "abc"}, {"max_tokens", 4}, {"stop", "fgX"}, {"stream", true}});
  EXPECT_EQ(text_of(reply->events()), "defg");
  EXPECT_EQ(choice_of(reply->events().back()).at("finish_reason"), "length");
}

TEST(Answer, StopTokensEndATextAndAreNoPartOfIt) {
  Serving serving;
  const Json told = serving.ask({{"prompt", "abc"}, {"max_tokens", 9}, {"stop_token_ids", {'g'}}})->json();
  EXPECT_EQ(choice_of(told).at("text"), "def");
  EXPECT_EQ(choice_of(told).at("finish_reason"), "stop");
}

TEST(Answer, CharactersOfSeveralTokensAreSentWhole) {
  Serving serving({.next = kLetters});
  const Json body = {{"prompt", "x"}, {"max_tokens", 20}};
  EXPECT_EQ(serving.complete(body), "\u00e9\U0001F600!");
  Json streamed = body;
  streamed["stream"] = true;
  const std::vector<Json> events = serving.ask(streamed)->events();
  EXPECT_EQ(text_of(events), "\u00e9\U0001F600!");
  for (const Json& event : events) EXPECT_THAT(event.dump(), Not(HasSubstr("\uFFFD")));
  // A text that ends within a character shows that it does.
  streamed["max_tokens"] = 4;
  EXPECT_EQ(text_of(serving.ask(streamed)->events()), serving.complete({{"prompt", "x"}, {"max_tokens", 4}}));
}

TEST(Answer, AnEchoedPromptIsScoredAndNothingMayBeGenerated) {
  Serving serving;
  Json body = {{"prompt", "ab\u00e9"}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 1}};
  const Json told = choice_of(serving.ask(body)->json());
  EXPECT_EQ(told.at("text"), "ab\u00e9\uFFFD");  // the successor of é's last byte is no character
  const Json& scores = told.at("logprobs");
  EXPECT_EQ(scores.at("tokens"), Json({"", "a", "b", "", "\u00e9", "\uFFFD"}));
  EXPECT_TRUE(scores.at("token_logprobs").at(0).is_null()) << "nothing stands in front of the first token";
  EXPECT_NEAR(scores.at("token_logprobs").at(2).get<double>(), 0, 1e-6) << "b behind a is the model's own";
  EXPECT_LT(scores.at("token_logprobs").at(3).get<double>(), -10);
  EXPECT_EQ(scores.at("text_offset"), Json({0, 0, 1, 2, 2, 3})) << "in characters, not in bytes";
  EXPECT_EQ(scores.at("top_logprobs").at(2).size(), 1U);
  EXPECT_TRUE(scores.at("top_logprobs").at(2).contains("b"));
  body["max_tokens"] = 0;
  const Json scored = serving.ask(body)->json();
  EXPECT_EQ(choice_of(scored).at("text"), "ab\u00e9");
  EXPECT_EQ(choice_of(scored).at("logprobs").at("tokens").size(), 5U);
  EXPECT_EQ(scored.at("usage").at("completion_tokens"), 0);
}

TEST(Answer, LogProbabilitiesOfAChatNameTheirBytes) {
  Serving serving({.next = {{':', 0xC3}, {0xC3, 0xA9}, {0xA9, kEndToken}}});
  const Json body = chat_of("hi", {{"logprobs", true}, {"top_logprobs", 2}});
  const Json told = choice_of(serving.ask(body, Endpoint::kChat)->json());
  EXPECT_EQ(told.at("message").at("content"), "\u00e9");
  const Json& tokens = told.at("logprobs").at("content");
  ASSERT_EQ(tokens.size(), 2U);
  EXPECT_EQ(tokens.at(1).at("token"), "\u00e9");
  EXPECT_EQ(tokens.at(1).at("bytes"), Json({0xC3, 0xA9}));
  EXPECT_EQ(tokens.at(1).at("top_logprobs").size(), 2U);
}

TEST(Answer, APromptThatLeavesNoRoomIsRefusedWithAllNumbers) {
  Serving serving({.context_length = 10});
  const auto reply = serving.ask({{"prompt", "abcdef"}, {"max_tokens", 4}});
  EXPECT_EQ(reply->response().status, 400);
  EXPECT_THAT(reply->response().body, HasSubstr("the prompt has 7 tokens and max_tokens is 4"));
  EXPECT_THAT(reply->response().body, HasSubstr("the 10 of this server"));
  EXPECT_EQ(serving.complete({{"prompt", "abcdef"}, {"max_tokens", 3}}), "ghi");
  EXPECT_EQ(serving.fault(), "") << "the client's mistake is no fault of the server";
}

TEST(Answer, MistakesAreToldByTheirField) {
  Serving serving;
  const auto field = serving.ask({{"prompt", "a"}, {"n", 500}});
  EXPECT_EQ(field->response().status, 400);
  EXPECT_EQ(field->json().at("error").at("param"), "n");
  EXPECT_EQ(field->json().at("error").at("type"), "invalid_request_error");
  const auto model = serving.ask({{"prompt", "a"}, {"model", "other"}});
  EXPECT_EQ(model->response().status, 404);
  EXPECT_EQ(model->json().at("error").at("code"), "model_not_found");
}

TEST(Answer, AdaptersAreChosenByNameAndAnswerByIt) {
  Serving serving({.adapters = {"zero", "one"}});
  const auto told = [&](const Json& model) {
    Json body = {{"prompt", "abc"}, {"max_tokens", 3}};
    if (!model.is_null()) body["model"] = model;
    return serving.ask(body)->json();
  };
  EXPECT_EQ(choice_of(told("zero")).at("text"), "000");
  EXPECT_EQ(choice_of(told("one")).at("text"), "111");
  EXPECT_EQ(told("zero").at("model"), "zero");
  EXPECT_EQ(told("one").at("model"), "one");
  EXPECT_EQ(choice_of(told(nullptr)).at("text"), "def");
  EXPECT_EQ(told(nullptr).at("model"), "mine");
}

TEST(Answer, AQueueThatIsFullIsToldWithATimeToComeBack) {
  Serving serving({.max_queued_requests = 2});
  Hold hold(serving.engine());
  // The third prompt is one too many, and the request leaves nothing of the other two behind.
  const auto full = serving.ask({{"prompt", {"a", "b", "c"}}});
  EXPECT_EQ(full->response().status, 503);
  EXPECT_THAT(full->response().fields, ElementsAre(testing::Pair("Retry-After", "1")));
  EXPECT_EQ(full->json().at("error").at("type"), "overloaded_error");
  hold.release();
  while (!serving.engine().idle()) std::this_thread::yield();
  EXPECT_EQ(serving.engine().stats().aborted, 2);
  EXPECT_EQ(serving.complete({{"prompt", "abc"}, {"max_tokens", 1}}), "d");
}

TEST(Answer, AClientThatLeavesIsForgotten) {
  Serving serving;
  Hold hold(serving.engine());
  const auto streamed = serving.ask({{"prompt", "abc"}, {"max_tokens", 90}, {"stream", true}});
  const auto whole = serving.ask({{"prompt", "abc"}, {"max_tokens", 90}});
  streamed->leave();
  whole->leave();
  // An answer that has told the engine lets go of its reply. Until then a running engine might finish it.
  while (streamed.use_count() > 1 || whole.use_count() > 1) std::this_thread::yield();
  hold.release();
  EXPECT_EQ(serving.complete({{"prompt", "abc"}, {"max_tokens", 1}}), "d");
  serving.engine().stop("it is read");
  EXPECT_EQ(serving.engine().stats().aborted, 2);
  EXPECT_EQ(streamed->written() + whole->written(), 0U);
}

TEST(Answer, NothingIsWrittenToASlowClientUntilItReads) {
  Serving serving;
  auto slow = std::make_shared<MemoryReply>();
  slow->be_slow(1 << 20);
  serving.ask({{"prompt", "abc"}, {"max_tokens", 50}, {"stream", true}}, Endpoint::kCompletions, "a", slow);
  while (!serving.engine().idle()) std::this_thread::yield();
  const std::string other = serving.complete({{"prompt", "abc"}, {"max_tokens", 50}});
  EXPECT_EQ(slow->written(), 0U);
  slow->read_all();
  EXPECT_EQ(text_of(slow->events()), other);
  EXPECT_LT(slow->events().size(), 5U) << "all that waited is one piece";
}

// Streams are decoded together; one that the tokenizer cannot decode ends alone.
TEST(Answer, ATokenizerThatFailsEndsOneStreamWithAnEventAndSparesTheOthers) {
  const BrokenTokenizer tokenizer('5');
  Serving serving({}, tokenizer);
  std::shared_ptr<MemoryReply> broken, other;
  {
    const Hold hold(serving.engine());
    broken = serving.ask({{"prompt", "012"}, {"max_tokens", 9}, {"stream", true}});
    other = serving.ask({{"prompt", "abc"}, {"max_tokens", 9}, {"stream", true}});
  }
  EXPECT_EQ(text_of(other->events()), "defghijkl");
  EXPECT_TRUE(other->is_done());
  EXPECT_FALSE(broken->is_done());
  EXPECT_THAT(broken->response().body, HasSubstr("the tokenizer has ended"));
  EXPECT_EQ(serving.fault(), "the tokenizer has ended");
}

TEST(Answer, AServerThatStopsTellsItsClientsToComeBack) {
  Serving serving;
  Hold hold(serving.engine());
  const auto whole = serving.ask({{"prompt", "abc"}, {"max_tokens", 5}});
  auto stopped = std::async([&] { serving.engine().stop("the server was stopped"); });
  while (serving.ask({{"prompt", "abc"}, {"max_tokens", 1}})->written() == 0) std::this_thread::yield();
  hold.release();
  stopped.wait();
  EXPECT_EQ(whole->response().status, 503);
  EXPECT_THAT(whole->response().fields, ElementsAre(testing::Pair("Retry-After", "5")));
  EXPECT_EQ(serving.fault(), "");
}

TEST(Answer, ACallOfAToolIsNoText) {
  Serving serving({.next = kCall});
  const Json body = {{"prompt", "w"}, {"max_tokens", 20}};
  EXPECT_EQ(serving.complete(body),
            "<tool_call>{\"name\": \"look\", \"arguments\": {\"city\": \"Oslo\"}}</tool_call>")
      << "without tools a call is text";
  Json chat = chat_of("hi", {{"tools", kLook}});
  Serving calls({.next = [] {
    auto next = kCall;
    next[':'] = 'w';
    return next;
  }()});
  const Json told = choice_of(calls.ask(chat, Endpoint::kChat)->json());
  EXPECT_EQ(told.at("finish_reason"), "tool_calls");
  EXPECT_EQ(told.at("message").at("content"), "w");
  const Json& call = told.at("message").at("tool_calls").at(0);
  EXPECT_EQ(call.at("function"), Json({{"name", "look"}, {"arguments", R"({"city":"Oslo"})"}}));
  chat["stream"] = true;
  const std::vector<Json> events = calls.ask(chat, Endpoint::kChat)->events();
  EXPECT_EQ(text_of(events), "w");
  const Json& last = choice_of(events.back());
  EXPECT_EQ(last.at("finish_reason"), "tool_calls");
  EXPECT_EQ(last.at("delta").at("tool_calls").at(0).at("index"), 0);
  EXPECT_EQ(last.at("delta").at("tool_calls").at(0).at("function"), call.at("function"));
}

}  // namespace
}  // namespace sluice::serve
