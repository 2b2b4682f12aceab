// Parses HTTP/1.1 requests, heads and bodies, as strictly as RFC 9112 permits for a server behind a proxy.
// Two programs that disagree about a message's end let bytes of one client pass for another's request
// (request smuggling). So everything that h11 and llhttp refuse is refused here.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::http {

// A refused message, with the status to answer. Its end is unknown, so its connection is closed,
// too.
class Fault : public std::runtime_error {
 public:
  Fault(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

struct Field {
  std::string name;  // in lower case
  std::string value;
};

struct Head {
  std::string method;
  std::string path;  // percent-decoded, without the query; "*" and authorities unchanged
  std::string host;  // without the port; empty: HTTP/1.0 without a Host field
  std::vector<Field> fields;
  int minor_version = 1;
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool expects_continue = false;

  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
  // The value of the first field of that name; null if there is none.
  const std::string* find(std::string_view name) const;
};

// The end of the head at the start of `bytes`, after its empty line; 0 if it has not arrived. `searched`
// starts at 0 and avoids searching bytes twice. Fault if no request begins this way.
size_t end_of_head(std::string_view bytes, size_t& searched);

// Parses `bytes`, a complete head. Fault 400, 417, 431, 501 or 505 naming the error.
Head read_head(std::string_view bytes);

// Reads the body after a head and removes its chunking. Trailers are checked and dropped.
class BodyReader {
 public:
  // Fault 413 if the body exceeds `most_bytes`; a Content-Length or chunk size fails before its bytes come.
  BodyReader(const Head& head, int64_t most_bytes);

  // Consumes the body's bytes at the front of `bytes` and returns their number.
  size_t read(std::string_view bytes);
  bool done() const { return state_ == State::kDone; }
  int64_t bytes() const { return static_cast<int64_t>(body_.size()); }
  std::string take() { return std::move(body_); }

 private:
  enum class State : uint8_t { kData, kSize, kDataEnd, kTrailer, kDone };
  void take_line(std::string_view line);
  size_t read_line(std::string_view bytes);
  size_t read_data(std::string_view bytes);
  void require_room(uint64_t more) const;

  State state_ = State::kDone;
  bool chunked_ = false;
  uint64_t left_ = 0;  // bytes left in the chunk, or in the body
  uint64_t most_bytes_ = 0;
  uint64_t line_bytes_ = 0;  // total of chunk extensions and trailers
  std::string line_;         // the incomplete line
  std::string body_;
};

// The host name in a Host field, an authority or an origin: without port and brackets, in lower case.
std::string name_of_authority(std::string_view authority);
// Whether a name is an IPv4 or IPv6 address.
bool is_address(const std::string& name);

}  // namespace sluice::http
