// Lengths with a heavy tail, for benches.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/rng.h"

namespace sluice::bench {

// exp of a normal number with this deviation (Box and Muller's), cut to [1, most].
inline int64_t lognormal_tokens(base::Rng& rng, double median, double sigma, int64_t most) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  const double normal = radius * std::cos(2 * std::numbers::pi * rng.uniform());
  return std::clamp<int64_t>(std::llround(median * std::exp(sigma * normal)), 1, most);
}

}  // namespace sluice::bench
