#include "corpus/utf8.h"

#include <cstdint>

namespace sluice::corpus {

namespace {

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Bytes of the character at the front, 0 when malformed.
size_t character_size(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || bytes.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (!is_continuation(bytes[i])) return 0;
  }
  // The second byte rules out overlong forms (E0, F0), surrogates (ED) and code points too large (F4).
  const auto second = static_cast<uint8_t>(bytes[1]);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return size;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t size = character_size(bytes.substr(at));
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

}  // namespace sluice::corpus
