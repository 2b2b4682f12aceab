// 64-bit content hashes (xxHash3): plan agreement between ranks and checksums of files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

uint64_t hash_bytes(const void* data, size_t size);
inline uint64_t hash_bytes(std::string_view bytes) { return hash_bytes(bytes.data(), bytes.size()); }

// 128 bits: collisions are negligible among all documents in the world.
struct WideHash {
  uint64_t low = 0, high = 0;
  bool operator==(const WideHash&) const = default;
};
WideHash wide_hash_bytes(std::string_view bytes);

// 16 lower-case hexadecimal digits, and back (InputError otherwise).
std::string hash_text(uint64_t hash);
uint64_t parse_hash(std::string_view text);

// Canonical bytes: integers as eight bytes, little-endian; texts preceded by their size.
class CanonicalBytes {
 public:
  CanonicalBytes& add(int64_t value);
  CanonicalBytes& add(std::string_view value);
  const std::string& bytes() const { return bytes_; }
  uint64_t hash() const { return hash_bytes(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace sluice::base
