#include "base/printable.h"

#include <cstdint>
#include <cstdio>

#include "base/utf8.h"

namespace sluice::base {

namespace {

constexpr size_t kPendingBytes = 1 << 16;

bool changes_direction(char32_t point) {
  return point == 0x061C || point == 0x200E || point == 0x200F || (point >= 0x202A && point <= 0x202E) ||
         (point >= 0x2066 && point <= 0x2069);
}

bool is_printable(char32_t point, Layout layout) {
  if (point == '\n' || point == '\t') return layout == Layout::kLines;
  const bool control = point < 0x20 || (point >= 0x7F && point < 0xA0);
  const bool separates_lines = point == 0x2028 || point == 0x2029;
  return !control && !separates_lines && !changes_direction(point);
}

}  // namespace

std::string printable(std::string_view value, Layout layout) {
  std::string out;
  out.reserve(value.size());
  char escape[16];
  while (!value.empty()) {
    const size_t size = utf8_character_size(value);
    const std::string_view character = value.substr(0, size == 0 ? 1 : size);
    if (size == 0) {
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(static_cast<uint8_t>(value[0])));
      out += escape;
    } else if (const char32_t point = utf8_code_point(character); !is_printable(point, layout)) {
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(point));
      out += escape;
    } else {
      out += character;
    }
    value.remove_prefix(character.size());
  }
  return out;
}

PrintableStream::PrintableStream(std::ostream& stream) : stream_(stream), destination_(stream.rdbuf()) {
  stream_.rdbuf(this);
}

PrintableStream::~PrintableStream() {
  sync();
  stream_.rdbuf(destination_);
}

PrintableStream::int_type PrintableStream::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char byte = traits_type::to_char_type(c);
  return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
}

// Between flushes only whole lines are passed on, so that no UTF-8 character is cut in two.
std::streamsize PrintableStream::xsputn(const char* bytes, std::streamsize size) {
  pending_.append(bytes, static_cast<size_t>(size));
  const bool taken = pending_.size() < kPendingBytes || pass_on(pending_.rfind('\n') + 1);
  return taken ? size : 0;
}

int PrintableStream::sync() {
  const bool taken = pass_on(pending_.size());
  return destination_->pubsync() == 0 && taken ? 0 : -1;
}

bool PrintableStream::pass_on(size_t size) {
  const std::string out = printable(std::string_view(pending_).substr(0, size), Layout::kLines);
  pending_.erase(0, size);
  return destination_->sputn(out.data(), static_cast<std::streamsize>(out.size())) ==
         static_cast<std::streamsize>(out.size());
}

}  // namespace sluice::base
