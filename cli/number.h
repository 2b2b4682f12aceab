// Options that take a number within a range.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>

#include "base/range.h"
#include "base/text.h"

namespace sluice::cli {

// Refuses a text that is not a number within [least, most], and names the range.
template <typename T>
CLI::Validator within(T least, T most) {
  const base::Range<T> range{least, most};
  const auto fault = [range](const std::string& value) -> std::string {
    T number{};
    if (CLI::detail::lexical_cast(value, number) && range.holds(number)) return "";
    return base::text("'", value, "': give ", base::expectation(range));
  };
  return {fault, base::text(least, " to ", most)};
}

// Accepts "131072", "128K" or "1M", and turns it into digits.
CLI::Validator token_count();

inline CLI::Validator at_least(int64_t least) { return within(least, std::numeric_limits<int64_t>::max()); }

}  // namespace sluice::cli
