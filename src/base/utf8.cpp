#include "base/utf8.h"

#include <cstdint>

namespace sluice::base {

size_t utf8_character_size(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = at(1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second >= 0xA0;
  const bool beyond = lead == 0xF4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : size;
}

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t size = utf8_character_size(bytes.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return at;
}

size_t utf8_cut(std::string_view bytes, size_t limit) {
  if (bytes.size() <= limit) return bytes.size();
  while (limit > 0 && (static_cast<uint8_t>(bytes[limit]) & 0xC0) == 0x80) --limit;
  return limit;
}

char32_t utf8_code_point(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return lead;
  char32_t point = lead & (0xFF >> (character.size() + 1));
  for (const char c : character.substr(1)) point = point << 6 | (static_cast<uint8_t>(c) & 0x3F);
  return point;
}

std::string beginning(std::string_view value, size_t most_bytes) {
  const size_t size = utf8_cut(value, most_bytes);
  return std::string(value.substr(0, size)) + (size < value.size() ? "…" : "");
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

}  // namespace sluice::base
