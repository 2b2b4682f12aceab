// Reading numbers from JSON objects and checking their ranges.
#pragma once

#include <string>
#include <type_traits>

#include "base/json.h"
#include "base/range.h"

namespace sluice::base {

// Whether `value` is a number that T can hold. For other values the library would truncate floats and wrap
// around integers.
template <typename T>
bool holds_number(const Json& value) {
  if constexpr (std::is_integral_v<T>) {
    return holds_integer<T>(value);
  } else {
    return value.is_number();
  }
}

// value[key] within `range`. InputError naming `name`, `key`, the value and the range.
template <typename T>
T require_in(const Json& value, const std::string& key, const Range<T>& range, const std::string& name) {
  const Json* found = find(value, key);
  if (found == nullptr) refuse_without(key, expectation(range), name);
  if (!holds_number<T>(*found) || !range.holds(found->get<T>()))
    refuse(*found, key, expectation(range), name);
  return found->get<T>();
}

}  // namespace sluice::base
