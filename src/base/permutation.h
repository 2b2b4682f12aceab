// A pseudo-random order that is computed and never stored.
#pragma once

#include <cstdint>

namespace sluice::base {

// A seeded permutation of [0, size) evaluated at one index in O(1) memory: a four-round Feistel network
// on the next even power of two, walked until it lands inside (cycle walking).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t stream);
  // REQUIRES: index < size.
  uint64_t at(uint64_t index) const;

 private:
  uint64_t size_;
  uint64_t seed_;
  uint64_t stream_;
  int half_bits_;
};

}  // namespace sluice::base
