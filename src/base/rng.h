// Counter-based random numbers: every draw is a pure function of (seed, stream, counter), so any rank can
// compute any draw without the ones before it, with the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace sluice::base {

// A strong 64-bit mix of three words (Philox-2x64, 10 rounds: Salmon et al., SC'11).
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter);

// A uniform double in [0, 1) and a standard normal one (Box–Muller on draws of the same counter).
double random_uniform(uint64_t seed, uint64_t stream, uint64_t counter);
double random_normal(uint64_t seed, uint64_t stream, uint64_t counter);

// Sequential draws from one stream.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint64_t bits() { return random_bits(seed_, stream_, counter_++); }
  double uniform() { return random_uniform(seed_, stream_, counter_++); }
  // Uniform in [0, bound), without modulo bias. REQUIRES: bound > 0.
  uint64_t below(uint64_t bound);
  // Uniform in [low, high], both included. REQUIRES: low <= high.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  // Fisher–Yates, the same on every standard library.
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t counter_ = 0;
};

}  // namespace sluice::base
