#include "base/permutation.h"

#include "base/feistel.h"

namespace sluice::base {

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t stream)
    : size_(size), seed_(seed), stream_(stream), half_bits_(feistel::half_bits_of(size)) {}

uint64_t Permutation::at(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  return feistel::permuted(index, size_, half_bits_, [&](uint64_t round, uint64_t half) {
    return random_bits(seed_, stream_ * feistel::kRounds + round, half) & mask;
  });
}

}  // namespace sluice::base
