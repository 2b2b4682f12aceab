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

}  // namespace sluice::corpus
