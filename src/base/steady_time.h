// The steady clock in nanoseconds, the unit of all times in the code.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice::base {

inline int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sluice::base
