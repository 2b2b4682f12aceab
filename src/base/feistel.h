// The Feistel network behind base::Permutation, PermutationTable and PermutationOrder, which compute the bits
// of its rounds in different ways.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace sluice::base::feistel {

inline constexpr uint64_t kRounds = 4;

// Bits of half an index: the network permutes [0, 4^bits), the next even power of two.
inline int half_bits_of(uint64_t size) {
  int bits = 1;
  while (bits < 31 && (uint64_t{1} << (2 * bits)) < size) ++bits;
  return bits;
}

// The image of `index` under the network, both in [0, 4^half_bits). `draw(round, half)` returns the bits, as
// many as half an index has, that a round mixes in.
template <typename Draw>
uint64_t walked(uint64_t index, int half_bits, Draw draw) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = index >> half_bits;
  uint64_t right = index & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = left ^ draw(round, right);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

// Cycle walking: applies the network until the image lies in [0, size). REQUIRES: index < size.
template <typename Draw>
uint64_t permuted(uint64_t index, uint64_t size, int half_bits, Draw draw) {
  do {
    index = walked(index, half_bits, draw);
  } while (index >= size);
  return index;
}

// The bits that each round mixes in, for each value of half an index.
using RoundTables = std::array<std::vector<uint32_t>, kRounds>;
inline RoundTables round_tables(int half_bits, uint64_t seed, uint64_t stream) {
  const uint64_t halves = uint64_t{1} << half_bits;
  RoundTables tables;
  for (uint64_t round = 0; round < kRounds; ++round) {
    tables[round].resize(halves);
    for (uint64_t half = 0; half < halves; ++half) {
      tables[round][half] =
          static_cast<uint32_t>(random_bits(seed, stream * kRounds + round, half) & (halves - 1));
    }
  }
  return tables;
}

}  // namespace sluice::base::feistel
