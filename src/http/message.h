// Requests of HTTP/1.1 as bytes: heads and bodies, read as strictly as RFC 9112 lets a server behind a proxy
// be. Two programs that see a message end at different places let one client's bytes pass for another's
// request (request smuggling), so what h11 and llhttp refuse is refused here.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::http {

// A message that is refused: the status to answer with. Where it ends is not known, so its connection ends
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
  std::string path;  // percent-decoded, without the query; "*" and authorities as they are
  std::string host;  // without the port; empty: HTTP/1.0 without one
  std::vector<Field> fields;
  int minor_version = 1;
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool expects_continue = false;

  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
  // The value of the first such field; null: there is none.
  const std::string* find(std::string_view name) const;
};

// The end of the head that `bytes` begin with, behind its empty line; 0: it has not come. `searched` is 0 at
// first, and saves looking twice at what was looked at before. Fault where no request begins so.
size_t end_of_head(std::string_view bytes, size_t& searched);

// The head that `bytes` are. Fault 400, 417, 431, 501 or 505 naming what is wrong.
Head read_head(std::string_view bytes);

// The body behind a head, with chunks taken apart. Trailers are checked and left out.
class BodyReader {
 public:
  // Fault 413 beyond `most_bytes`, where a length is told before any byte is read.
  BodyReader(const Head& head, int64_t most_bytes);

  // Takes what belongs to the body from the front of `bytes`, and returns how much that is.
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
  uint64_t left_ = 0;  // of the chunk, or of the body
  uint64_t most_bytes_ = 0;
  uint64_t line_bytes_ = 0;  // of sizes' extensions and trailers so far
  std::string line_;         // that has not ended
  std::string body_;
};

// A Host's, an authority's or an origin's name, without its port and brackets, in lower case.
std::string name_of_authority(std::string_view authority);
// Whether a name is an address of IPv4 or IPv6.
bool is_address(const std::string& name);

}  // namespace sluice::http
