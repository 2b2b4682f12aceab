// base::Permutation for callers that list long stretches of it: the same values, about five times as fast as
// a loop over a PermutationTable.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::base {

// Thread-safe after construction.
class PermutationOrder {
 public:
  PermutationOrder(uint64_t size, uint64_t seed, uint64_t stream);
  // Permutation(size, seed, stream).at(begin), at(begin + 1), … into all of `values`.
  // REQUIRES: begin + values.size() <= size.
  void list(uint64_t begin, std::span<uint64_t> values) const;

 private:
  uint64_t size_;
  int half_bits_;
  std::array<std::vector<uint32_t>, 4> rounds_;
};

}  // namespace sluice::base
