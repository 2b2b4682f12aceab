#include "base/permutation_table.h"

#include "base/feistel.h"
#include "base/rng.h"

namespace sluice::base {

PermutationTable::PermutationTable(uint64_t size, uint64_t seed, uint64_t stream)
    : size_(size), half_bits_(feistel::half_bits_of(size)) {
  static_assert(std::tuple_size_v<decltype(rounds_)> == feistel::kRounds);
  const uint64_t halves = uint64_t{1} << half_bits_;
  for (uint64_t round = 0; round < feistel::kRounds; ++round) {
    rounds_[round].resize(halves);
    for (uint64_t half = 0; half < halves; ++half) {
      rounds_[round][half] =
          static_cast<uint32_t>(random_bits(seed, stream * feistel::kRounds + round, half) & (halves - 1));
    }
  }
}

uint64_t PermutationTable::at(uint64_t index) const {
  return feistel::permuted(index, size_, half_bits_,
                           [&](uint64_t round, uint64_t half) { return rounds_[round][half]; });
}

}  // namespace sluice::base
