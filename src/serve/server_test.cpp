// The endpoint as its clients meet it, over sockets of this machine.
#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/text.h"
#include "serve/test_client.h"
#include "serve/test_serving.h"

namespace sluice::serve {
namespace {

using base::Json;
using base::text;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;

ServerOptions options_of(const std::vector<std::string>& keys = {}) {
  return {.port = 0,
          .keys = keys,
          .model = "mine",
          .fingerprint = "fp",
          .context_length = 200,
          .vocabulary = kVocabulary,
          .end_tokens = {kEndToken},
          .threads = 2};
}

// An endpoint whose model says the successor of each byte.
class Endpoints {
 public:
  explicit Endpoints(const ServerOptions& options = options_of(), const ByteTokenizer& tokenizer = kDefault)
      : model_({}, std::ssize(options.adapters)),
        decoder_(model_.shard(), kTestKvBlocks, /*most_texts=*/8),
        engine_(decoder_, engine_options()),
        server_(engine_, tokenizer, options),
        thread_([this] { server_.run(); }) {}
  ~Endpoints() {
    server_.stop();
    thread_.join();
  }

  // The whole answer; the connection is closed behind it.
  std::string get(const std::string& path, const std::string& fields = "Host: localhost\r\n") {
    return exchange(port(), text("GET ", path, " HTTP/1.1\r\n", fields, "Connection: close\r\n\r\n"));
  }
  std::string post(const std::string& path, const std::string& body, const std::string& fields = kJson) {
    return exchange(port(), text("POST ", path, " HTTP/1.1\r\n", fields,
                                 "Connection: close\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  }
  // The text of a completion of three tokens.
  std::string complete(const std::string& prompt) {
    return body_of(post("/v1/completions", Json({{"prompt", prompt}, {"max_tokens", 3}}).dump()))
        .at("choices")
        .at(0)
        .at("text");
  }
  static Json body_of(const std::string& answer) {
    return Json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }

  int port() const { return server_.port(); }
  Server& server() { return server_; }
  Engine& engine() { return engine_; }

  static constexpr const char* kJson = "Host: localhost\r\nContent-Type: application/json\r\n";

 private:
  static inline const ByteTokenizer kDefault;

  ChainedModel model_;
  generate::Decoder decoder_;
  Engine engine_;
  Server server_;
  std::thread thread_;
};

TEST(Server, CompletionsAndChatsAreAnswered) {
  Endpoints endpoints;
  EXPECT_EQ(endpoints.complete("abc"), "def");
  const Json chat = {{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}, {"max_tokens", 3}};
  const Json told = Endpoints::body_of(endpoints.post("/v1/chat/completions", chat.dump()));
  EXPECT_EQ(told.at("choices").at(0).at("message").at("content"), ";<=");
  EXPECT_THAT(told.at("id").get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(told.at("system_fingerprint"), "fp");
  endpoints.server().set_fingerprint("fp2");
  const Json later = Endpoints::body_of(endpoints.post("/v1/chat/completions", chat.dump()));
  EXPECT_EQ(later.at("system_fingerprint"), "fp2");
  EXPECT_NE(later.at("id"), told.at("id"));
}

TEST(Server, AStreamIsSentInChunks) {
  Endpoints endpoints;
  const std::string told =
      endpoints.post("/v1/completions", R"({"prompt": "abc", "max_tokens": 3, "stream": true})");
  EXPECT_THAT(told,
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Type: text/event-stream\r\n"),
                    HasSubstr("Transfer-Encoding: chunked\r\n"), HasSubstr("data: [DONE]\n\n\r\n0\r\n\r\n")));
}

TEST(Server, ModelsAreListedWithTheirAdapters) {
  ServerOptions options = options_of();
  options.adapters = {"law"};
  Endpoints endpoints(options);
  const Json list = Endpoints::body_of(endpoints.get("/v1/models"));
  ASSERT_EQ(list.at("data").size(), 2U);
  EXPECT_EQ(list.at("data").at(0).at("id"), "mine");
  EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 200);
  EXPECT_FALSE(list.at("data").at(0).contains("parent"));
  EXPECT_EQ(list.at("data").at(1).at("parent"), "mine");
  EXPECT_EQ(Endpoints::body_of(endpoints.get("/v1/models/law")).at("id"), "law");
  const std::string unknown = endpoints.get("/v1/models/other");
  EXPECT_THAT(unknown, AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("ask for 'mine'")));
  const Json told = Endpoints::body_of(
      endpoints.post("/v1/completions", R"({"prompt": "abc", "max_tokens": 2, "model": "law"})"));
  EXPECT_EQ(told.at("choices").at(0).at("text"), "00");
}

TEST(Server, PathsMethodsAndContentsThatItDoesNotTakeAreRefused) {
  Endpoints endpoints;
  EXPECT_THAT(endpoints.get("/v1/completions"),
              AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("GET /v1/completions is nothing")));
  EXPECT_THAT(endpoints.post("/v1/nothing", "{}"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(
      endpoints.post("/v1/embeddings", "{}"),
      AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("unsupported_endpoint"), HasSubstr("ask /v1/completions")));
  EXPECT_THAT(endpoints.post("/v1/completions", "{}", "Host: localhost\r\nContent-Type: text/plain\r\n"),
              AllOf(StartsWith("HTTP/1.1 415"), HasSubstr("Content-Type: application/json")));
  EXPECT_THAT(
      endpoints.post("/v1/completions", "{}", std::string(Endpoints::kJson) + "Content-Encoding: gzip\r\n"),
      AllOf(StartsWith("HTTP/1.1 415"), HasSubstr("Accept-Encoding: identity")));
  const std::string charset = "Host: localhost\r\nContent-Type: Application/JSON; charset=utf-8\r\n";
  EXPECT_THAT(endpoints.post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})", charset),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(endpoints.post("/v1/completions", "{\"prompt\": \"\xff\"}"), StartsWith("HTTP/1.1 400"));
}

TEST(Server, WithoutAKeyPagesOfTheWebAreNotAnswered) {
  Endpoints endpoints;
  EXPECT_THAT(endpoints.get("/v1/models", "Host: evil.example\r\n"),
              AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("'evil.example'"), HasSubstr("SLUICE_API_KEY")));
  EXPECT_THAT(endpoints.get("/v1/models", "Host: localhost\r\nOrigin: http://evil.example\r\n"),
              StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(endpoints.get("/v1/models", "Host: localhost\r\nOrigin: http://localhost\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(endpoints.get("/v1/models", "Host: 127.0.0.1:8000\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST(Server, KeysAreAskedForBeforeABodyIsRead) {
  Endpoints endpoints(options_of({"first", "second"}));
  const auto asked = [&](const std::string& fields) {
    return endpoints.get("/v1/models", "Host: a.example\r\n" + fields);
  };
  EXPECT_THAT(asked("Authorization: Bearer second\r\n"), StartsWith("HTTP/1.1 200"));
  for (const char* wrong : {"", "Authorization: Bearer\r\n", "Authorization: Bearer secon\r\n",
                            "Authorization: second\r\n", "Authorization: Bearer secondfirst\r\n"})
    EXPECT_THAT(asked(wrong), AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Bearer"),
                                    HasSubstr("invalid_api_key")))
        << wrong;
  EXPECT_THAT(endpoints.get("/health", "Host: a.example\r\n"), StartsWith("HTTP/1.1 200"));
  // The body never comes, and the answer does not wait for it.
  EXPECT_THAT(exchange(endpoints.port(),
                       "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"),
              StartsWith("HTTP/1.1 401"));
}

TEST(Server, MetricsCountRequestsAndTokens) {
  Endpoints endpoints;
  endpoints.complete("abc");
  endpoints.complete("xyz");
  exchange(endpoints.port(), "nonsense\r\n\r\n");
  const std::string page = endpoints.get("/metrics");
  EXPECT_THAT(
      page, AllOf(HasSubstr("text/plain; version=0.0.4"), HasSubstr("\nsluice_requests_total 2\n"),
                  HasSubstr("\nsluice_prompt_tokens_total 8\n"), HasSubstr("\nsluice_bad_messages_total 1\n"),
                  HasSubstr(text("\nsluice_kv_cache_blocks ", kTestKvBlocks, "\n")),
                  HasSubstr("# TYPE sluice_sequences_running gauge")));
}

TEST(Server, HealthIsTheEnginesAndAfterAFaultTheTokenizers) {
  const BrokenTokenizer tokenizer('5');
  Endpoints endpoints(options_of(), tokenizer);
  EXPECT_THAT(endpoints.get("/health"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(endpoints.post("/v1/completions", R"({"prompt": "123", "max_tokens": 4})"),
              StartsWith("HTTP/1.1 500"));
  // The first question has the tokenizer tried; it has recovered.
  EXPECT_THAT(endpoints.get("/health"), AllOf(StartsWith("HTTP/1.1 503"),
                                              HasSubstr("the last request failed: the tokenizer has ended")));
  while (!endpoints.get("/health").starts_with("HTTP/1.1 200")) std::this_thread::yield();
  endpoints.engine().stop("the server was stopped");
  EXPECT_THAT(endpoints.post("/v1/completions", R"({"prompt": "a"})"),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("the server was stopped")));
}

TEST(Server, DrainingAnswersOpenRequestsAndTakesNoOthers) {
  Endpoints endpoints;
  Hold hold(endpoints.engine());
  const int open = connected(endpoints.port()), idle = connected(endpoints.port());
  const std::string body = R"({"prompt": "abc", "max_tokens": 3})";
  const std::string asked = text("POST /v1/completions HTTP/1.1\r\n", Endpoints::kJson,
                                 "Content-Length: ", body.size(), "\r\n\r\n", body);
  ::send(open, asked.data(), asked.size(), MSG_NOSIGNAL);
  while (endpoints.engine().stats().requests == 0) std::this_thread::yield();
  endpoints.server().drain();
  EXPECT_EQ(received(idle), "") << "a connection without a request is closed";
  hold.release();
  EXPECT_THAT(received(open),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("def"), HasSubstr("Connection: close")));
  ::close(open);
  ::close(idle);
  while (connected(endpoints.port()) >= 0) std::this_thread::yield();
}

TEST(Server, AClientThatHangsUpFreesItsPlace) {
  Endpoints endpoints;
  Hold hold(endpoints.engine());
  const int socket = connected(endpoints.port());
  const std::string body = R"({"prompt": "abc", "max_tokens": 190})";
  const std::string asked = text("POST /v1/completions HTTP/1.1\r\n", Endpoints::kJson,
                                 "Content-Length: ", body.size(), "\r\n\r\n", body);
  ::send(socket, asked.data(), asked.size(), MSG_NOSIGNAL);
  while (endpoints.engine().stats().requests == 0) std::this_thread::yield();
  const linger reset{.l_onoff = 1, .l_linger = 0};  // as a process does that is killed
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  ::close(socket);
  while (endpoints.get("/metrics").find("\nsluice_connections 1\n") == std::string::npos)
    std::this_thread::yield();
  hold.release();
  while (!endpoints.engine().idle()) std::this_thread::yield();
  EXPECT_EQ(endpoints.engine().stats().aborted, 1);
}

TEST(Server, AnAddressThatIsTakenIsRefusedWithTheOptionsThatChangeIt) {
  Endpoints first;
  ServerOptions options = options_of();
  options.port = first.port();
  EXPECT_THAT([&] { Endpoints second(options); },
              ThrowsMessage<base::InputError>(
                  AllOf(HasSubstr(text("127.0.0.1 port ", first.port())), HasSubstr("--port or --host"))));
}

// A model that ends in a head answers other paths, and says so of the rest.
TEST(Server, AHeadsModelNamesThePathsThatItAnswers) {
  const ByteTokenizer tokenizer;
  HeadEngine engine(
      [](const TokenTexts& texts) {
        return std::vector<std::vector<double>>(texts.size(), {3, 4});
      },
      {});
  ServerOptions options = options_of();
  options.head = {.output = ServedHead::Output::kEmbedding, .width = 2};
  Server server(engine, tokenizer, options);
  std::thread thread([&] { server.run(); });
  const auto post = [&](const std::string& path, const std::string& body) {
    return exchange(server.port(),
                    text("POST ", path, " HTTP/1.1\r\n", Endpoints::kJson,
                         "Connection: close\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  };
  const Json told = Endpoints::body_of(post("/v1/embeddings", R"({"input": "a"})"));
  EXPECT_EQ(told.at("data").at(0).at("embedding").size(), 2U);
  EXPECT_THAT(post("/v1/completions", R"({"prompt": "a"})"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("generates no text: ask /v1/embeddings")));
  EXPECT_THAT(post("/classify", R"({"input": "a"})"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("embeddings of 2 numbers")));
  EXPECT_THAT(post("/v1/nothing", "{}"), StartsWith("HTTP/1.1 404"));
  server.stop();
  thread.join();
}

}  // namespace
}  // namespace sluice::serve
