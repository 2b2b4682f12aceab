#include "http/message.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace sluice::http {
namespace {

constexpr size_t kMostFields = 128;
constexpr uint64_t kMostLineBytes = 16384;  // limit for a body's chunk extensions and trailers together

bool is_token_letter(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || kMarks.find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_token_letter); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

// False for NUL, line breaks and DEL, which different programs interpret differently.
bool may_stand_in_value(char c) {
  constexpr std::string_view kNever("\0\r\n\v\f\x7f", 6);
  return kNever.find(c) == std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return made;
}

std::string percent_decoded(std::string_view text) {
  std::string made;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      made += static_cast<char>(value);
      i += 2;
    } else {
      made += text[i];
    }
  }
  return made;
}

// Takes the line up to "\r\n", or "\n" as RFC 9112 (2.2) permits, from the front of `rest`.
std::string_view next_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end == std::string_view::npos ? end : end + 1));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

Field read_field(std::string_view line) {
  if (is_blank(line.front())) throw Fault(400, "a header line is folded: write each field on one line");
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == std::string_view::npos || !is_token(name))
    throw Fault(400, "a header line is no field: write NAME: VALUE, without a space before the colon");
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!std::ranges::all_of(value, may_stand_in_value))
    throw Fault(400, "a header's value has a control character: leave it out");
  return {lower(name), std::string(value)};
}

void read_request_line(std::string_view line, Head& head, std::string_view& target) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  const bool parts = first != std::string_view::npos && last > first + 1;
  const std::string_view method = line.substr(0, first);
  target = parts ? line.substr(first + 1, last - first - 1) : std::string_view();
  const std::string_view version = parts ? line.substr(last + 1) : std::string_view();
  const auto is_visible = [](char c) { return c > ' ' && c < '\x7f'; };
  const bool is_version = version.size() == 8 && version.starts_with("HTTP/") && is_digit(version[5]) &&
                          version[6] == '.' && is_digit(version[7]);
  if (!is_token(method) || !is_version || !std::ranges::all_of(target, is_visible))
    throw Fault(400, "the request's first line is not METHOD TARGET HTTP/1.1");
  if (version[5] != '1') throw Fault(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  head.method = method;
  head.minor_version = version[7] - '0';
}

// Parses a path, or "http://HOST/PATH", whose host replaces that of the Host field (RFC 9112, 3.2.2).
void read_target(std::string_view target, Head& head) {
  const size_t scheme = target.find("://");
  if (target.front() != '/' && scheme != std::string_view::npos) {
    target.remove_prefix(scheme + 3);
    const size_t path = std::min(target.find('/'), target.size());
    head.host = name_of_authority(target.substr(0, path));
    target.remove_prefix(path);
    if (target.empty()) target = "/";
  }
  head.path = percent_decoded(target.substr(0, target.find_first_of("?#")));
}

// Parses Content-Length. Several equal values count as one (RFC 9112, 6.3).
void read_length(const std::string& value, Head& head) {
  std::string_view rest = value;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view each = trimmed(rest.substr(0, comma));
    uint64_t length = 0;
    const auto [end, error] = std::from_chars(each.data(), each.data() + each.size(), length);
    const bool whole = !each.empty() && std::ranges::all_of(each, is_digit);
    if (!whole || error != std::errc() || end != each.data() + each.size())
      throw Fault(400, "Content-Length is no number of bytes");
    if (head.content_length && *head.content_length != length)
      throw Fault(400, "two Content-Lengths contradict each other");
    head.content_length = length;
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

void read_coding(const std::string& value, Head& head) {
  if (head.chunked || lower(value) != "chunked")
    throw Fault(501, "Transfer-Encoding is something else than chunked, once");
  head.chunked = true;
}

bool has_option(const Head& head, std::string_view option) {
  for (const Field& field : head.fields) {
    if (field.name != "connection") continue;
    std::string_view rest = field.value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (lower(trimmed(rest.substr(0, comma))) == option) return true;
      rest.remove_prefix(std::min(rest.size(), comma + 1));
    }
  }
  return false;
}

// Interprets the fields about the message's length, its host and its connection.
void read_meaning(Head& head) {
  int hosts = 0;
  std::string host;
  for (const auto& [name, value] : head.fields) {
    if (name == "host") {
      ++hosts;
      host = name_of_authority(value);
    } else if (name == "content-length") {
      read_length(value, head);
    } else if (name == "transfer-encoding") {
      read_coding(value, head);
    } else if (name == "expect") {
      if (lower(value) != "100-continue") throw Fault(417, "Expect is something else than 100-continue");
      head.expects_continue = head.minor_version > 0;
    }
  }
  if (hosts > 1 || (hosts == 0 && head.minor_version > 0)) throw Fault(400, "one Host field is needed");
  if (head.host.empty()) head.host = host;
  head.keep_alive = head.minor_version > 0 ? !has_option(head, "close") : has_option(head, "keep-alive");
  // A proxy in front of this server may have used the other of the two lengths.
  if (head.chunked && (head.content_length || head.minor_version == 0)) head.keep_alive = false;
  if (head.chunked) head.content_length.reset();
}

}  // namespace

const std::string* Head::find(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &found->value;
}

size_t end_of_head(std::string_view bytes, size_t& searched) {
  // Skips an empty line in front (RFC 9112, 2.2).
  const size_t begin = bytes.starts_with("\r\n") ? 2 : bytes.starts_with('\n') ? 1 : 0;
  if (bytes.size() > begin && bytes.substr(begin) != "\r" && !is_token_letter(bytes[begin]))
    throw Fault(400, "no request of HTTP begins so: is it one of TLS?");
  for (size_t at = std::max(begin, searched); (at = bytes.find('\n', at)) != std::string_view::npos; ++at) {
    const std::string_view rest = bytes.substr(at + 1);
    if (rest.starts_with('\n')) return at + 2;
    if (rest.starts_with("\r\n")) return at + 3;
    if (rest.empty() || rest == "\r") {
      searched = at;
      return 0;
    }
  }
  searched = bytes.size();
  return 0;
}

Head read_head(std::string_view bytes) {
  if (bytes.starts_with("\r\n")) bytes.remove_prefix(2);
  if (bytes.starts_with('\n')) bytes.remove_prefix(1);
  Head head;
  std::string_view target;
  read_request_line(next_line(bytes), head, target);
  while (true) {
    const std::string_view line = next_line(bytes);
    if (line.empty()) break;
    if (head.fields.size() == kMostFields) throw Fault(431, "too many header fields");
    head.fields.push_back(read_field(line));
  }
  read_target(target, head);
  read_meaning(head);
  return head;
}

BodyReader::BodyReader(const Head& head, int64_t most_bytes)
    : chunked_(head.chunked),
      left_(head.content_length.value_or(0)),
      most_bytes_(static_cast<uint64_t>(most_bytes)) {
  if (chunked_) {
    state_ = State::kSize;
  } else if (left_ > 0) {
    require_room(left_);
    state_ = State::kData;
  }
}

void BodyReader::require_room(uint64_t more) const {
  if (more <= most_bytes_ - body_.size()) return;
  throw Fault(413,
              "the body has more than the " + std::to_string(most_bytes_) + " bytes that it may have here");
}

size_t BodyReader::read(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && state_ != State::kDone) {
    const std::string_view rest = bytes.substr(taken);
    taken += state_ == State::kData ? read_data(rest) : read_line(rest);
  }
  return taken;
}

size_t BodyReader::read_data(std::string_view bytes) {
  const size_t taken = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
  body_.append(bytes.substr(0, taken));
  left_ -= taken;
  if (left_ == 0) state_ = chunked_ ? State::kDataEnd : State::kDone;
  return taken;
}

size_t BodyReader::read_line(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  const size_t taken = end == std::string_view::npos ? bytes.size() : end + 1;
  line_.append(bytes.substr(0, taken));
  line_bytes_ += state_ == State::kTrailer ? taken : 0;
  if (line_.size() + line_bytes_ > kMostLineBytes)
    throw Fault(431, "a chunk's extension, or the trailers, are too long");
  if (end == std::string_view::npos) return taken;
  const std::string line = std::exchange(line_, "");
  take_line(std::string_view(line).substr(0, line.size() - 1));
  return taken;
}

// REQUIRES: `line` lacks its "\n". Chunk sizes and ends of chunks must end with "\r\n"; trailers may end like
// header fields.
void BodyReader::take_line(std::string_view line) {
  const bool returned = line.ends_with('\r');
  if (returned) line.remove_suffix(1);
  if (state_ == State::kTrailer) {
    if (line.empty()) {
      state_ = State::kDone;
    } else {
      read_field(line);
    }
    return;
  }
  if (!returned || line.find('\r') != std::string_view::npos)
    throw Fault(400, "a chunk's line does not end with \\r\\n");
  if (state_ == State::kDataEnd) {
    if (!line.empty()) throw Fault(400, "a chunk is longer than its size says");
    state_ = State::kSize;
    return;
  }
  const size_t extension = std::min(line.find(';'), line.size());
  line_bytes_ += line.size() - extension;
  std::string_view digits = line.substr(0, extension);
  while (!digits.empty() && is_blank(digits.back())) digits.remove_suffix(1);
  const auto is_hex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
  if (digits.empty() || digits.size() > 20 || !std::ranges::all_of(digits, is_hex))
    throw Fault(400, "a chunk's size is no hexadecimal number");
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), left_, 16);
  if (error != std::errc()) left_ = ~uint64_t{0};
  require_room(left_);
  state_ = left_ > 0 ? State::kData : State::kTrailer;
}

std::string name_of_authority(std::string_view authority) {
  if (const size_t user = authority.rfind('@'); user != std::string_view::npos)
    authority.remove_prefix(user + 1);
  if (authority.starts_with('['))
    return lower(authority.substr(1, std::min(authority.find(']'), authority.size()) - 1));
  const size_t colon = authority.rfind(':');
  return lower(authority.substr(0, colon));
}

bool is_address(const std::string& name) {
  in6_addr buffer{};
  return inet_pton(AF_INET, name.c_str(), &buffer) == 1 || inet_pton(AF_INET6, name.c_str(), &buffer) == 1;
}

}  // namespace sluice::http
