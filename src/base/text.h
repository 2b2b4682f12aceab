// Text from values, and values from text. `text` is used instead of a format library in headers, because
// libtorch brings its own, newer fmt (docs/decisions/0002-text-not-fmt.md).
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

// Concatenates the parts as `operator<<` prints them.
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// The parts of `value` between `separator`; one empty part for an empty value.
std::vector<std::string> split(std::string_view value, char separator);

// `value` without leading and trailing white space.
std::string_view trim(std::string_view value);

// `parts` with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// The whole of `value` as a decimal integer, or nothing.
std::optional<int64_t> parse_integer(std::string_view value);

// The whole of `value` as a decimal number, or nothing.
std::optional<double> parse_number(std::string_view value);

// 1536 -> "1.5 KiB".
std::string human_bytes(double bytes);

// 1'500'000'000 ns -> "1.50 s".
std::string human_duration(int64_t nanoseconds);

// 12345678 -> "12,345,678".
std::string human_count(int64_t value);

// The candidate with the smallest edit distance to `word`, or "" when none is within 1 + size/3 edits.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace sluice::base
