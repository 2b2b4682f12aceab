#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"

namespace sluice::base {

WideHash wide_hash_bytes(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

uint64_t hash_bytes(const void* data, size_t size) { return XXH3_64bits(data, size); }

std::string hash_text(uint64_t hash) {
  char buffer[17];
  std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(hash));
  return buffer;
}

uint64_t parse_hash(std::string_view digits) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.size() != 16) {
    throw InputError(text("'", digits, "' is not a hash: give its 16 hexadecimal digits"));
  }
  return hash;
}

CanonicalBytes& CanonicalBytes::add(int64_t value) {
  char bytes[8];
  for (int byte = 0; byte < 8; ++byte) {
    bytes[byte] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * byte) & 0xFF);
  }
  bytes_.append(bytes, sizeof bytes);
  return *this;
}

CanonicalBytes& CanonicalBytes::add(std::string_view value) {
  add(static_cast<int64_t>(value.size()));
  bytes_ += value;
  return *this;
}

}  // namespace sluice::base
