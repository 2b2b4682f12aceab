#include "http/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::http {
namespace {

constexpr const char* kHost = "Host: a\r\n";

// The status for a whole message: 200 with its body read, otherwise the fault's; 0 if it is incomplete.
int status_of(const std::string& bytes, std::string* body = nullptr, int64_t most_bytes = 1000) {
  try {
    size_t searched = 0;
    const size_t end = end_of_head(bytes, searched);
    if (end == 0) return 0;
    const Head head = read_head(std::string_view(bytes).substr(0, end));
    BodyReader reader(head, most_bytes);
    reader.read(std::string_view(bytes).substr(end));
    if (!reader.done()) return 0;
    if (body != nullptr) *body = reader.take();
    return 200;
  } catch (const Fault& fault) {
    return fault.status();
  }
}

int status_of_post(const std::string& fields, const std::string& body) {
  return status_of("POST / HTTP/1.1\r\n" + std::string(kHost) + fields + "\r\n" + body);
}

TEST(Message, HeadsAreReadAsTheyAre) {
  const std::string bytes =
      "POST /v1/models/a%2Fb?x=1 HTTP/1.1\r\nHost: LOCALHOST:80\r\nX-A:  b c \t\r\nContent-Length: 5, "
      "5\r\nConnection: x, Close\r\n\r\n";
  const Head head = read_head(bytes);
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/models/a/b");
  EXPECT_EQ(head.host, "localhost");
  EXPECT_EQ(*head.find("x-a"), "b c");
  EXPECT_EQ(head.content_length, 5U);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_EQ(head.find("x-b"), nullptr);
}

TEST(Message, ATargetMayBeAbsolute) {
  const Head head = read_head("GET http://example.org:8000/health HTTP/1.1\r\nHost: other\r\n\r\n");
  EXPECT_EQ(head.path, "/health");
  EXPECT_EQ(head.host, "example.org");
  EXPECT_EQ(read_head("GET http://[::1]:8000 HTTP/1.1\r\nHost: x\r\n\r\n").path, "/");
  EXPECT_EQ(read_head("GET http://[::1]:8000 HTTP/1.1\r\nHost: x\r\n\r\n").host, "::1");
}

TEST(Message, HeadsThatTwoProgramsMayReadDifferentlyAreRefused) {
  for (const char* line :
       {"Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 5, 6\r\n", "Content-Length: +5\r\n",
        "Content-Length: -5\r\n", "Content-Length: 5z\r\n", "Content-Length: \r\n", "Content-Length: 0x5\r\n",
        "Content-Length: 5,\r\n", "Content-Length: 99999999999999999999999\r\n", "X: a\r\n b\r\n",
        "X : a\r\n", "Garbage\r\n", ": a\r\n", "a b: c\r\n", "Host: b\r\n"})
    EXPECT_EQ(status_of_post(line, "12345"), 400) << line;
  EXPECT_EQ(status_of_post(std::string("X: a\0b\r\n", 8), ""), 400);
  EXPECT_EQ(status_of_post("X: a\rContent-Length: 5\r\n", ""), 400);
  for (const char* coding : {"xchunked", "gzip, chunked", ",chunked", "chunked, chunked", "identity", ""})
    EXPECT_EQ(status_of_post("Transfer-Encoding: " + std::string(coding) + "\r\n", "0\r\n\r\n"), 501)
        << coding;
  EXPECT_EQ(status_of_post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 501);
  EXPECT_EQ(status_of_post("Expect: payment\r\n", ""), 417);
}

TEST(Message, FirstLinesAndVersions) {
  for (const char* line :
       {"GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET / http/1.1", "GET /\x7f HTTP/1.1",
        "G@T / HTTP/1.1", "GET / HTTP/1.11", "GET\t/ HTTP/1.1", "\x16\x03\x01"})
    EXPECT_EQ(status_of(std::string(line) + "\r\n" + kHost + "\r\n"), 400) << line;
  EXPECT_EQ(status_of(std::string("GET / HTTP/2.0\r\n") + kHost + "\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400);  // no Host
  EXPECT_EQ(status_of(std::string("\r\nGET / HTTP/1.1\n") + "Host: a\n\n"), 200);
}

TEST(Message, ALengthAndACodingEndTheConnection) {
  const Head head =
      read_head("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n");
  EXPECT_FALSE(head.keep_alive);
  EXPECT_TRUE(head.chunked);
  EXPECT_FALSE(head.content_length.has_value());
}

TEST(Message, ChunksAreTakenApartHoweverTheyCome) {
  const std::string bytes = std::string("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n") +
                            "5;a=\"b\"\r\nhello\r\n0006 \r\n world\r\n000\r\nX: trailer\r\n\r\nGET";
  std::string body;
  EXPECT_EQ(status_of(bytes, &body), 200);
  EXPECT_EQ(body, "hello world");
  size_t searched = 0;
  const size_t end = end_of_head(bytes, searched);
  BodyReader reader(read_head(bytes.substr(0, end)), 1000);
  size_t taken = 0;
  for (size_t i = end; i < bytes.size() && !reader.done(); ++i)
    taken += reader.read(std::string_view(bytes).substr(i, 1));
  EXPECT_EQ(reader.take(), "hello world");
  EXPECT_EQ(bytes.substr(end + taken), "GET");
}

TEST(Message, OddChunksAreRefused) {
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  for (const char* body :
       {"0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n",
        "5z\r\nhello\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "\r\nhello",
        " 5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\nbad\r\n\r\n", "5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n",
        "5\r\rhello\r\n", "5;a\rb\r\nhello\r\n0\r\n\r\n", "000000000000000000005\r\nhello\r\n0\r\n\r\n"})
    EXPECT_EQ(status_of_post(chunked, body), 400) << body;
  EXPECT_EQ(status_of_post(chunked, "ffffffffffffffff\r\n"), 413);
  EXPECT_EQ(status_of_post(chunked, "ffffffffffffffffffff\r\n"), 413);
  EXPECT_EQ(status_of_post(chunked, "5\r\nhello\r\n3e4\r\n"), 413);
  EXPECT_EQ(status_of_post(chunked, "5;" + std::string(20000, 'a') + "\r\n"), 431);
  std::string trailers = "0\r\n";
  for (int i = 0; i < 2000; ++i) trailers += "X: 0123456789\r\n";
  EXPECT_EQ(status_of_post(chunked, trailers), 431);
}

TEST(Message, ALengthBeyondTheBoundIsRefusedAtOnce) {
  EXPECT_EQ(status_of_post("Content-Length: 1001\r\n", ""), 413);
  EXPECT_EQ(status_of_post("Content-Length: 18446744073709551615\r\n", ""), 413);
  EXPECT_EQ(status_of_post("Content-Length: 1000\r\n", ""), 0);
  EXPECT_EQ(status_of_post("Content-Length: 0\r\n", ""), 200);
}

TEST(Message, TheEndOfAHeadIsFoundByteByByte) {
  const std::string bytes = "GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
  size_t searched = 0;
  for (size_t size = 1; size < 28; ++size)
    EXPECT_EQ(end_of_head(std::string_view(bytes).substr(0, size), searched), size == 27 ? 27U : 0U) << size;
}

TEST(Message, TooManyFieldsAreRefused) {
  std::string fields;
  for (int i = 0; i < 200; ++i) fields += "X: a\r\n";
  EXPECT_EQ(status_of_post(fields, ""), 431);
}

TEST(Message, NamesOfHosts) {
  EXPECT_EQ(name_of_authority("A.example:80"), "a.example");
  EXPECT_EQ(name_of_authority("[::1]:8000"), "::1");
  EXPECT_EQ(name_of_authority("[::1"), "::1");
  EXPECT_EQ(name_of_authority("user@evil.example"), "evil.example");
  EXPECT_EQ(name_of_authority(""), "");
  EXPECT_TRUE(is_address("127.0.0.1"));
  EXPECT_TRUE(is_address("::1"));
  EXPECT_FALSE(is_address("127.0.0.1.evil.example"));
  EXPECT_FALSE(is_address("0x7f.1"));
}

}  // namespace
}  // namespace sluice::http
