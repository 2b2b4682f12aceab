#include "base/permutation_table.h"

#include "base/rng.h"

namespace sluice::base {

PermutationTable::PermutationTable(uint64_t size, uint64_t seed, uint64_t stream)
    : size_(size), half_bits_(1) {
  while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
  const uint64_t halves = uint64_t{1} << half_bits_;
  for (uint64_t round = 0; round < rounds_.size(); ++round) {
    rounds_[round].resize(halves);
    for (uint64_t half = 0; half < halves; ++half) {
      rounds_[round][half] =
          static_cast<uint32_t>(random_bits(seed, stream * 4 + round, half) & (halves - 1));
    }
  }
}

uint64_t PermutationTable::at(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = index >> half_bits_;
    uint64_t right = index & mask;
    for (const std::vector<uint32_t>& round : rounds_) {
      const uint64_t mixed = left ^ round[right];
      left = right;
      right = mixed;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

}  // namespace sluice::base
