// The permutation behind base::Permutation and base::PermutationTable, whose rounds draw their bits
// differently.
#pragma once

#include <cstdint>

namespace sluice::base::feistel {

inline constexpr uint64_t kRounds = 4;

// Bits of half an index: the network permutes the next even power of two.
inline int half_bits_of(uint64_t size) {
  int bits = 1;
  while (bits < 31 && (uint64_t{1} << (2 * bits)) < size) ++bits;
  return bits;
}

// Where the network takes `index`, walked until it lands inside [0, size). `draw(round, half)` gives the
// bits, of half an index, that a round mixes in. REQUIRES: index < size.
template <typename Draw>
uint64_t permuted(uint64_t index, uint64_t size, int half_bits, Draw draw) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  do {
    uint64_t left = index >> half_bits;
    uint64_t right = index & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ draw(round, right);
      left = right;
      right = mixed;
    }
    index = left << half_bits | right;
  } while (index >= size);
  return index;
}

}  // namespace sluice::base::feistel
