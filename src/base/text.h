// Text from values, and values from text. Headers use `text` instead of a format library, because libtorch
// ships its own, newer fmt (docs/decisions/0002-text-not-fmt.md).
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

// Splits `value` at each `separator`; an empty value has one empty part.
std::vector<std::string> split(std::string_view value, char separator);

// `value` without leading and trailing white space.
std::string_view trim(std::string_view value);

// `parts` with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// All of `value` as a decimal integer; nullopt if it is none.
std::optional<int64_t> parse_integer(std::string_view value);

// All of `value` as a decimal number; nullopt if it is none.
std::optional<double> parse_number(std::string_view value);

// 1536 -> "1.5 KiB".
std::string human_bytes(double bytes);

// 1'500'000'000 ns -> "1.50 s".
std::string human_duration(int64_t nanoseconds);

// 12345678 -> "12,345,678".
std::string human_count(int64_t value);

// 1200, "batch", "batches" -> "1,200 batches"; `one` is used for 1 only.
std::string human_count(int64_t value, std::string_view one, std::string_view many);

// 0.0456 -> "4.56 %", 0.456 -> "45.6 %".
std::string human_percent(double share);

// Rows of cells as columns two spaces apart, a line each. `alignment` has a letter for every column: l for
// left, r for right. Cells are UTF-8. REQUIRES: no row has more cells than there are letters.
std::string table_text(const std::vector<std::vector<std::string>>& rows, std::string_view alignment);

// `value` padded with spaces to `columns` characters, on its right or on its left.
std::string padded_right(std::string_view value, size_t columns);
std::string padded_left(std::string_view value, size_t columns);

// The candidate with the smallest edit distance to `word`, or "" when none is within 1 + size/3 edits.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace sluice::base
