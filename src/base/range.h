// Permitted values of a number, and errors about others. Each format states its ranges once, beside its keys.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"

namespace sluice::base {

// Both ends are included.
template <typename T>
struct Range {
  T least;
  T most;
  bool holds(T value) const { return value >= least && value <= most; }  // false for NaN
};

// "a whole number from 1 to 4096"
template <typename T>
std::string expectation(const Range<T>& range) {
  return text(std::is_floating_point_v<T> ? "a number" : "a whole number", " from ", range.least, " to ",
              range.most);
}

// "1 to 2^40"; bounds from 2^16 on are shown as a power of two, or as one minus 1, if they are one.
template <typename T>
std::string bounds(const Range<T>& range) {
  const auto shown = [](T bound) {
    if constexpr (std::is_integral_v<T>) {
      const auto next = static_cast<uint64_t>(bound) + 1;
      if (bound >= 1 << 16 && std::has_single_bit(next - 1)) return text("2^", std::bit_width(next - 1) - 1);
      if (bound >= 1 << 16 && std::has_single_bit(next)) return text("2^", std::bit_width(next) - 1, " - 1");
    }
    return text(bound);
  };
  return text(shown(range.least), " to ", shown(range.most));
}

// InputError unless the range holds the value; the message calls it by the name `what`: "cluster: nodes".
template <typename T>
void require_in_range(const std::string& what, T value, const Range<T>& range) {
  if (!range.holds(value)) throw InputError(text(what, " is ", value, ": give ", expectation(range)));
}

}  // namespace sluice::base
