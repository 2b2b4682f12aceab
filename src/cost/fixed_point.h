// Integer arithmetic of costs: divisions that round, and durations that are never too long to be added up.
#pragma once

#include <cstdint>
#include <limits>

#include "base/error.h"

namespace sluice::cost {

// Wide enough for the sum of coefficient times squared length over any batch.
using Wide = __int128;

// Thirteen days: thousands of cells add up to less than what 64 bits hold.
inline constexpr int64_t kLongestNs = int64_t{1} << 50;

inline int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
inline int64_t wide_divide_up(Wide value, Wide by) { return static_cast<int64_t>((value + by - 1) / by); }

// Divides positive values, which rarely need 128 bits: a 128-bit division takes ten times as long.
inline Wide divide(Wide value, Wide by) {
  constexpr Wide kNarrow = std::numeric_limits<int64_t>::max();
  if (value > kNarrow || by > kNarrow) return value / by;
  return static_cast<uint64_t>(value) / static_cast<uint64_t>(by);
}

[[noreturn]] void refuse_long_duration();

// The value in 64 bits. REQUIRES: value >= 0. InputError above `most`, which says to correct the calibration.
inline int64_t narrow(Wide value, int64_t most = std::numeric_limits<int64_t>::max()) {
  SLUICE_ASSERT(value >= 0, "a duration is negative");
  if (value > most) refuse_long_duration();
  return static_cast<int64_t>(value);
}

// A duration: value ÷ by to nearest, halves up. REQUIRES: value >= 0, by > 0. InputError above kLongestNs.
inline int64_t divide_nearest(Wide value, Wide by) { return narrow(divide(value + by / 2, by), kLongestNs); }

}  // namespace sluice::cost
