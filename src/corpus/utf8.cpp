#include "corpus/utf8.h"

#include <cstdint>

#include "base/utf8.h"

namespace sluice::corpus {

namespace {

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t size = base::utf8_character_size(bytes.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return at;
}

size_t utf8_cut(std::string_view bytes, size_t limit) {
  if (bytes.size() <= limit) return bytes.size();
  size_t cut = limit;
  while (cut > 0 && is_continuation(bytes[cut])) --cut;
  return cut;
}

std::string_view without_byte_order_mark(std::string_view bytes) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return bytes.starts_with(kMark) ? bytes.substr(kMark.size()) : bytes;
}

const char* wide_encoding(std::string_view bytes) {
  const auto zero = [&](size_t i) { return bytes.size() >= 4 && bytes[i] == '\0'; };
  const bool little = bytes.starts_with("\xFF\xFE"), big = bytes.starts_with("\xFE\xFF");
  if ((little && zero(2) && zero(3)) || (zero(0) && zero(1) && bytes[2] == '\xFE' && bytes[3] == '\xFF'))
    return "UTF-32";
  const bool ascii_first = zero(1) && zero(3) && !zero(0) && !zero(2);
  const bool ascii_last = zero(0) && zero(2) && !zero(1) && !zero(3);
  return little || big || ascii_first || ascii_last ? "UTF-16" : nullptr;
}

}  // namespace sluice::corpus
