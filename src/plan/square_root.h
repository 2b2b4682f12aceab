// Integer square roots: plans are made without floating point.
#pragma once

#include <cstdint>
#include <limits>

namespace sluice::plan {

// The largest integer whose square is at most `value`. REQUIRES: value >= 0.
inline int64_t square_root(int64_t value) {
  int64_t root = 0;
  for (int bit = std::numeric_limits<int32_t>::digits; bit >= 0; --bit) {
    const int64_t next = root | int64_t{1} << bit;
    if (__int128{next} * next <= value) root = next;
  }
  return root;
}

}  // namespace sluice::plan
