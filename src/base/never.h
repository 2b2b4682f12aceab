// The other half of base/feasible.h, for searches that compare times.
#pragma once

#include <cstdint>
#include <limits>

namespace sluice::base {

// The time of what never happens, later than all others. Sums of it overflow: estimates that are added up say
// cost::kLongestNs.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace sluice::base
