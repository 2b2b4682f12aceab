// Random bits that depend on a place and a seed alone: numbers rounded by them are the same on any rank and
// device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace sluice::runtime {

// Rounding: stochastic with a seed, else to the nearest.
using Seed = std::optional<uint64_t>;

// A finaliser of MurmurHash3 (Appleby, 2011): every bit of the result depends on all bits of the argument.
[[gnu::always_inline]] inline uint32_t hashed(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x85ebca6bU;
  bits = (bits ^ (bits >> 13)) * 0xc2b2ae35U;
  return bits ^ (bits >> 16);
}

// The argument of hashed() for element i: a function of i and the seed alone.
inline constexpr uint32_t kStep = 0x9e3779b9U;
[[gnu::always_inline]] inline uint32_t salted(int64_t element, uint64_t seed) {
  return (static_cast<uint32_t>(element) * kStep + static_cast<uint32_t>(seed)) ^
         static_cast<uint32_t>(seed >> 32);
}

// hashed(salted(first + i, seed)) >> shift as int32 [numbers], by ATen's operators. REQUIRES: shift > 0.
at::Tensor all_hashed(int64_t first, int64_t numbers, uint64_t seed, int64_t shift, c10::Device device);

}  // namespace sluice::runtime
