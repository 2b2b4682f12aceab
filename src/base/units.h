// Fractions of a unit in which quantities are counted.
#pragma once

#include <cstdint>

namespace sluice::base {

inline constexpr int64_t kMilli = 1'000;  // thousandths: permille, pipelines that are divisible
inline constexpr int64_t kMicro = 1'000'000;
inline constexpr int64_t kNano = 1'000'000'000;  // nanoseconds in a second

}  // namespace sluice::base
