// The steady clock in the unit that everything here is told in.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice::base {

inline int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sluice::base
