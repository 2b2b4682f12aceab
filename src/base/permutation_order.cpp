#include "base/permutation_order.h"

#include <algorithm>

#include "base/feistel.h"

namespace sluice::base {

PermutationOrder::PermutationOrder(uint64_t size, uint64_t seed, uint64_t stream)
    : size_(size),
      half_bits_(feistel::half_bits_of(size)),
      rounds_(feistel::round_tables(half_bits_, seed, stream)) {}

// An index takes a random number of walks, so a loop over indices would wait for unpredictable branches. Here
// each round walks all remaining indices once, without a branch that depends on where they land.
void PermutationOrder::list(uint64_t begin, std::span<uint64_t> values) const {
  constexpr size_t kTogether = 512;
  std::array<uint64_t, kTogether> walking;
  std::array<uint32_t, kTogether> slots;
  const auto draw = [&](uint64_t round, uint64_t half) { return uint64_t{rounds_[round][half]}; };
  for (size_t first = 0; first < values.size(); first += kTogether) {
    size_t count = std::min(kTogether, values.size() - first);
    for (size_t i = 0; i < count; ++i) {
      walking[i] = begin + first + i;
      slots[i] = static_cast<uint32_t>(i);
    }
    while (count > 0) {
      size_t outside = 0;
      for (size_t i = 0; i < count; ++i) {
        const uint64_t value = feistel::walked(walking[i], half_bits_, draw);
        const uint32_t slot = slots[i];
        values[first + slot] = value;
        walking[outside] = value;
        slots[outside] = slot;
        outside += value >= size_ ? 1 : 0;
      }
      count = outside;
    }
  }
}

}  // namespace sluice::base
