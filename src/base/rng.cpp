#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace sluice::base {

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  constexpr uint64_t kMultiplier = 0xD2B74407B1CE6E93ULL;
  constexpr uint64_t kWeyl = 0x9E3779B97F4A7C15ULL;
  uint64_t left = counter;
  uint64_t right = stream;
  uint64_t key = seed;
  for (int round = 0; round < 10; ++round) {
    const auto product = static_cast<unsigned __int128>(kMultiplier) * left;
    left = static_cast<uint64_t>(product >> 64) ^ key ^ right;
    right = static_cast<uint64_t>(product);
    key += kWeyl;
  }
  return left;
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  return static_cast<double>(random_bits(seed, stream, counter) >> 11) * 0x1.0p-53;
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  const uint64_t bits = random_bits(seed, stream, counter);
  const double radius_draw = (static_cast<double>(bits >> 32) + 0.5) * 0x1.0p-32;
  const double angle_draw = (static_cast<double>(bits & 0xFFFFFFFFULL) + 0.5) * 0x1.0p-32;
  return std::sqrt(-2.0 * std::log(radius_draw)) * std::cos(2.0 * std::numbers::pi * angle_draw);
}

uint64_t Rng::below(uint64_t bound) {
  // Lemire's multiplication with rejection.
  const uint64_t threshold = (0 - bound) % bound;
  while (true) {
    const auto product = static_cast<unsigned __int128>(bits()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

}  // namespace sluice::base
