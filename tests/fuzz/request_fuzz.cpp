// request_fuzz --count N --seed S: messages of HTTP as clients, and those who mean harm, send them: by
// grammar with damage, bytes at random, chunked, pipelined; each read whole and in pieces, which must come to
// the same. Links nothing but what reads them, for a sanitizer's build in minutes.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "http/fields.h"
#include "http/message.h"
#include "mutate.h"
#include "program.h"

namespace sluice::fuzz {
namespace {

using base::text;

constexpr int64_t kMostBody = 4096;
constexpr http::FieldRule kRules[] = {
    {"prompt", http::kText | http::kList},
    {"max_tokens", http::kWhole},
    {"temperature", http::kNumber},
    {"stream", http::kFlag},
    {"logit_bias", http::kObject},
    {"user", http::kText, http::Use::kNoEffect},
    {"response_format", http::kObject, http::Use::kNeutralOnly, R"({"type": "text"})"}};

// What a connection's bytes come to: each request's path and body, then the fault's status, or 0 where they
// go on.
struct Outcome {
  std::vector<std::string> requests;
  int fault = 0;
  bool operator==(const Outcome&) const = default;
};

// As a server reads: the buffer grows by pieces whose sizes `next_size` says.
template <typename NextSize>
Outcome read(std::string_view bytes, NextSize next_size) {
  Outcome outcome;
  std::string buffer;
  size_t searched = 0;
  std::optional<http::BodyReader> body;
  try {
    while (!bytes.empty()) {
      const size_t size = std::min(bytes.size(), next_size());
      buffer += bytes.substr(0, size);
      bytes.remove_prefix(size);
      while (true) {
        if (!body) {
          const size_t end = buffer.empty() ? 0 : http::end_of_head(buffer, searched);
          if (end == 0) break;
          require(end <= buffer.size(), "a head ends behind what there is");
          const http::Head head = http::read_head(std::string_view(buffer).substr(0, end));
          outcome.requests.push_back(head.method + " " + head.path + " " + head.host);
          body.emplace(head, kMostBody);
          buffer.erase(0, end);
          searched = 0;
        }
        const size_t taken = body->read(buffer);
        require(taken <= buffer.size() && body->bytes() <= kMostBody,
                "a body has more than there is, or may be");
        buffer.erase(0, taken);
        if (!body->done()) break;
        outcome.requests.back() += " " + body->take();
        body.reset();
      }
    }
  } catch (const http::Fault& fault) {
    require(fault.status() >= 400 && fault.status() < 600, "a fault's status is none of a fault");
    outcome.fault = fault.status();
  }
  return outcome;
}

std::string pick(base::Rng& rng, const std::vector<std::string>& from) {
  return from[rng.below(from.size())];
}

std::string body_of(base::Rng& rng) {
  const base::Json sound = {{"prompt", {"a", "b"}},     {"max_tokens", 5},
                            {"temperature", 0.5},       {"stream", true},
                            {"logit_bias", {{"5", 1}}}, {"response_format", {{"type", "text"}}}};
  const std::string body = base::json_text(rng.below(2) == 0 ? sound : damage(sound, rng));
  return rng.below(4) == 0 ? damage(body, rng) : body;
}

std::string chunked(const std::string& body, base::Rng& rng) {
  std::string made;
  for (size_t at = 0; at < body.size();) {
    const auto size = static_cast<size_t>(rng.between(1, 40));
    const std::string part = body.substr(at, size);
    char digits[24];
    std::snprintf(digits, sizeof digits, rng.below(2) == 0 ? "%zx" : "0%zX", part.size());
    made += digits + pick(rng, {"", "", ";a=b", " ", ";"}) + "\r\n" + part + "\r\n";
    at += part.size();
  }
  return made + pick(rng, {"0\r\n\r\n", "0\r\nX: a\r\n\r\n", "00;x\r\n\r\n"});
}

std::string message(base::Rng& rng) {
  const std::string body = body_of(rng);
  const bool in_chunks = rng.below(2) == 0;
  std::string made = pick(rng, {"POST", "GET", "HEAD", "OPTIONS", "DELETE"}) + " " +
                     pick(rng, {"/v1/completions", "/health", "*", "http://a:1/v1", "/%41%2", "/a?b#c"}) +
                     " " + pick(rng, {"HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0"}) +
                     pick(rng, {"\r\n", "\r\n", "\n"});
  made += "Host: " + pick(rng, {"localhost", "[::1]:80", "a", "", "x@y"}) + "\r\n";
  for (int64_t i = rng.between(0, 3); i > 0; --i)
    made += pick(rng, {"Content-Type: application/json", "Connection: close", "X:\ta b\t",
                       "Content-Encoding: gzip", "Expect: 100-continue", "Content-Length: 5",
                       "Transfer-Encoding: gzip", "X : a", " folded", "Host: b"}) +
            "\r\n";
  made += in_chunks ? "Transfer-Encoding: chunked\r\n" : text("Content-Length: ", body.size(), "\r\n");
  return made + "\r\n" + (in_chunks ? chunked(body, rng) : body);
}

void read_json(const std::string& body) {
  try {
    http::require_few_entries(body, 1000);
    const base::Json json = base::parse_json(body, "a body");
    if (json.is_object()) http::check_fields(json, kRules);
  } catch (const base::InputError&) {
  }
}

void run_case(const Cases&, uint64_t seed) {
  base::Rng rng(seed);
  std::string bytes;
  for (int64_t i = rng.between(1, 4); i > 0; --i) bytes += message(rng);
  if (rng.below(2) == 0) bytes = damage(bytes, rng);
  if (rng.below(50) == 0) {
    for (char& c : bytes) c = static_cast<char>(rng.below(256));
  }
  const Outcome whole = read(bytes, [&] { return bytes.size(); });
  const Outcome pieces = read(bytes, [&] { return static_cast<size_t>(rng.between(1, 30)); });
  // A head is refused when it is whole, or by its first letter: what is read before does not differ.
  require(whole == pieces, "bytes in pieces come to something else than at once");
  read_json(body_of(rng));
  read_json(damage(body_of(rng), rng));
}

}  // namespace
}  // namespace sluice::fuzz

int main(int argc, char** argv) {
  return sluice::fuzz::run_program(
      {.name = "request_fuzz",
       .count = 5000,
       .flags = {},
       .run_case = sluice::fuzz::run_case,
       .summary = [](const sluice::fuzz::Cases&) { return std::string("requests were read alike"); }},
      argc, argv);
}
