// Ranges of metrics: counts, bytes and nanoseconds whose sums over a run stay inside 64 bits.
#pragma once

#include <cstdint>

#include "base/range.h"

namespace sluice::report {

inline constexpr base::Range<int64_t> kMetricCounts{0, int64_t{1} << 58};
inline constexpr base::Range<double> kMetricMilliseconds{0, 1e11};

}  // namespace sluice::report
