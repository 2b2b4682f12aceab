#include "base/permutation_table.h"

#include "base/feistel.h"

namespace sluice::base {

PermutationTable::PermutationTable(uint64_t size, uint64_t seed, uint64_t stream)
    : size_(size),
      half_bits_(feistel::half_bits_of(size)),
      rounds_(feistel::round_tables(half_bits_, seed, stream)) {}

uint64_t PermutationTable::at(uint64_t index) const {
  return feistel::permuted(index, size_, half_bits_,
                           [&](uint64_t round, uint64_t half) { return rounds_[round][half]; });
}

}  // namespace sluice::base
