#include "serve/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "serve/test_client.h"

namespace sluice::serve {
namespace {

using base::text;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Answers with the path and the body; "/wait" is answered by the test, "/stream" in pieces.
class Echo : public HttpHandler {
 public:
  explicit Echo(const HttpLimits& limits = {})
      : server_("127.0.0.1", 0, limits, *this), thread_([this] { server_.run(); }) {}
  ~Echo() override {
    server_.stop();
    thread_.join();
  }

  Admission admit(const http::Head& head) override {
    if (head.path == "/refused") return {refusal(401, "no"), 0};
    return {std::nullopt, 1 << 20};
  }
  void handle(HttpRequest request, std::shared_ptr<Reply> reply) override {
    if (request.head.path == "/wait") return held_.set_value(std::move(reply));
    if (request.head.path != "/stream")
      return reply->send(
          {.status = 200, .body = request.head.path + request.body, .content_type = "text/plain"});
    reply->begin("text/plain");
    reply->write("one ");
    reply->write("two");
    reply->end();
  }
  Response refusal(int status, const std::string& message) const override {
    return {.status = status, .body = message, .content_type = "text/plain"};
  }

  int port() const { return server_.port(); }
  HttpServer& server() { return server_; }
  std::shared_ptr<Reply> held() { return held_.get_future().get(); }

 private:
  std::promise<std::shared_ptr<Reply>> held_;
  HttpServer server_;
  std::thread thread_;
};

std::string get(const std::string& path, const std::string& fields = "Connection: close\r\n") {
  return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n";
}
std::string post(const std::string& path, const std::string& body, const std::string& fields = "") {
  return text("POST ", path, " HTTP/1.1\r\nHost: a\r\n", fields, "Content-Length: ", body.size(), "\r\n\r\n",
              body);
}
size_t answers_in(const std::string& bytes) {
  size_t count = 0;
  for (size_t at = 0; (at = bytes.find("HTTP/1.1 ", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  Echo echo;
  std::string asked;
  for (int i = 0; i < 50; ++i) asked += post(text("/", i), text("<", i, ">"));
  const std::string answer = exchange(echo.port(), asked + get("/last"));
  EXPECT_EQ(answers_in(answer), 51U);
  size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = answer.find(text("/", i, "<", i, ">"), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_THAT(answer, EndsWith("/last"));
}

TEST(HttpServer, AnUnreadBodyIsNoRequest) {
  Echo echo;
  for (const std::string& asked :
       {post("/refused", get("/smuggled")),
        std::string("POST /refused HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n") +
            get("/smuggled"),
        post("/", get("/smuggled"), "Content-Length: 3\r\n")}) {
    const std::string answer = exchange(echo.port(), asked);
    EXPECT_EQ(answers_in(answer), 1U) << answer;
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
  }
  // Without a body the connection goes on.
  EXPECT_EQ(answers_in(exchange(echo.port(), get("/refused", "") + get("/next"))), 2U);
}

TEST(HttpServer, ABodyOfAGetBelongsToIt) {
  Echo echo;
  const std::string answer =
      exchange(echo.port(), "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" + get("/b"));
  EXPECT_THAT(answer, HasSubstr("/ahello"));
  EXPECT_EQ(answers_in(answer), 2U);
}

TEST(HttpServer, APostWithoutALengthIsAnsweredAtOnce) {
  Echo echo;
  const int socket = connected(echo.port());
  const std::string asked = "POST /a HTTP/1.1\r\nHost: a\r\n\r\n";
  ::send(socket, asked.data(), asked.size(), 0);
  char buffer[1000];
  EXPECT_GT(::recv(socket, buffer, sizeof buffer, 0), 0);
  ::close(socket);
}

TEST(HttpServer, StreamsAreChunked) {
  Echo echo;
  const std::string answer = exchange(echo.port(), get("/stream"));
  EXPECT_THAT(answer, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_THAT(answer, EndsWith("4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"));
  const std::string old = exchange(echo.port(), "GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old, EndsWith("\r\n\r\none two"));
}

TEST(HttpServer, HeadHasNoBody) {
  Echo echo;
  const std::string answer =
      exchange(echo.port(), "HEAD /abc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST(HttpServer, ContinueIsSaidBeforeTheBody) {
  Echo echo;
  const int socket = connected(echo.port());
  const std::string head =
      "POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
  ::send(socket, head.data(), head.size(), 0);
  char buffer[100] = {};
  ASSERT_GT(::recv(socket, buffer, sizeof buffer - 1, 0), 0);
  EXPECT_THAT(buffer, StartsWith("HTTP/1.1 100 Continue\r\n\r\n"));
  ::send(socket, "hi", 2, 0);
  EXPECT_THAT(received(socket), EndsWith("/ahi"));
  ::close(socket);
}

TEST(HttpServer, BoundsAreToldByTheirStatus) {
  Echo echo({.header_bytes = 2000, .body_bytes = 100, .bodies_bytes = 150});
  EXPECT_THAT(exchange(echo.port(), "GET /" + std::string(3000, 'a')), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(exchange(echo.port(), get("/", "X: " + std::string(3000, 'a') + "\r\n")),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(exchange(echo.port(), post("/", std::string(101, 'a'))), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(exchange(echo.port(), "nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(exchange(echo.port(), "\x16\x03\x01\x02"), StartsWith("HTTP/1.1 400"));
  const int first = connected(echo.port());
  const std::string part = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + std::string(99, 'a');
  ::send(first, part.data(), part.size(), 0);
  const std::string second = exchange(echo.port(), part);
  EXPECT_THAT(second, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(second, HasSubstr("Retry-After"));
  ::close(first);
}

TEST(HttpServer, SlowRequestsEndAtTheirDeadline) {
  Echo echo({.header_s = 0.2, .body_s = 0.2, .idle_s = 0.2});
  EXPECT_THAT(exchange(echo.port(), "GET / HTTP/1.1\r\n"), StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(exchange(echo.port(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"),
              StartsWith("HTTP/1.1 408"));
  EXPECT_EQ(exchange(echo.port(), ""), "");
  EXPECT_EQ(answers_in(exchange(echo.port(), get("/", ""))), 1U);  // idle behind it
}

TEST(HttpServer, ManyConnectionsAreHeldAndAnswered) {
  Echo echo;
  std::vector<int> sockets;
  for (int i = 0; i < 500; ++i) sockets.push_back(connected(echo.port()));
  const std::string asked = get("/a");
  for (const int socket : sockets)
    ASSERT_EQ(::send(socket, asked.data(), asked.size(), 0), std::ssize(asked));
  for (const int socket : sockets) {
    EXPECT_THAT(received(socket), EndsWith("/a"));
    ::close(socket);
  }
}

TEST(HttpServer, BeyondTheirBoundConnectionsMakeRoomOrAreRefused) {
  Echo echo({.connections = 10});
  std::vector<int> idle;
  for (int i = 0; i < 30; ++i) idle.push_back(connected(echo.port()));
  EXPECT_THAT(exchange(echo.port(), get("/a")), EndsWith("/a"));
  for (const int socket : idle) ::close(socket);
  Echo other({.connections_per_client = 3});
  std::vector<int> own;
  for (int i = 0; i < 3; ++i) own.push_back(connected(other.port()));
  EXPECT_THAT(received(connected(other.port())), StartsWith("HTTP/1.1 503"));
  for (const int socket : own) ::close(socket);
}

TEST(HttpServer, AClientThatLeavesIsToldOf) {
  Echo echo;
  const int socket = connected(echo.port());
  const std::string asked = get("/wait");
  ::send(socket, asked.data(), asked.size(), 0);
  const std::shared_ptr<Reply> held = echo.held();
  std::promise<void> left;
  held->on_change([&] { left.set_value(); });
  ::close(socket);
  left.get_future().wait();
  EXPECT_TRUE(held->gone());
  held->send({});  // says nothing to anybody
}

TEST(HttpServer, ItsEndWaitsForAnswers) {
  auto echo = std::make_unique<Echo>();
  const int socket = connected(echo->port());
  const std::string asked = get("/wait", "") + get("/never");
  ::send(socket, asked.data(), asked.size(), 0);
  const std::shared_ptr<Reply> held = echo->held();
  echo->server().drain();
  std::promise<void> drained;
  echo->server().post([&] { drained.set_value(); });
  drained.get_future().wait();
  EXPECT_EQ(connected(echo->port()), -1);
  held->send({.status = 200, .body = "late"});
  EXPECT_THAT(received(socket), EndsWith("late"));
  ::close(socket);
}

}  // namespace
}  // namespace sluice::serve
