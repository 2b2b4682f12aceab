#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace sluice::base {

std::vector<std::string> split(std::string_view value, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = value.find(separator, begin);
    if (end == std::string_view::npos) break;
    parts.emplace_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.emplace_back(value.substr(begin));
  return parts;
}

std::string_view trim(std::string_view value) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t begin = value.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return value.substr(begin, value.find_last_not_of(kSpace) - begin + 1);
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += separator;
    joined += parts[i];
  }
  return joined;
}

std::optional<int64_t> parse_integer(std::string_view value) {
  int64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return result;
}

std::optional<double> parse_number(std::string_view value) {
  double result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return result;
}

namespace {

std::string scaled(double value, double base, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return buffer;
}

}  // namespace

std::string human_bytes(double bytes) { return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"}); }

std::string human_duration(int64_t nanoseconds) {
  const double seconds = static_cast<double>(nanoseconds) / 1e9;
  char buffer[64];
  if (std::abs(seconds) < 60)
    return scaled(static_cast<double>(nanoseconds), 1000, {"ns", "us", "ms", "s", "ks"});
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) {
    std::snprintf(buffer, sizeof buffer, "%lldm%02llds", whole / 60, whole % 60);
  } else {
    std::snprintf(buffer, sizeof buffer, "%lldh%02lldm", whole / 3600, whole / 60 % 60);
  }
  return buffer;
}

std::string human_count(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t sign = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > sign + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string human_count(int64_t value, std::string_view one, std::string_view many) {
  return text(human_count(value), " ", value == 1 ? one : many);
}

std::string human_percent(double share) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, std::abs(share) < 0.1 ? "%.2f %%" : "%.1f %%", 100 * share);
  return buffer;
}

namespace {

// The number of code points of a UTF-8 text.
size_t columns_of(std::string_view value) {
  const auto is_continuation = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  return value.size() - static_cast<size_t>(std::count_if(value.begin(), value.end(), is_continuation));
}

std::string padding(std::string_view value, size_t columns) {
  const size_t own = columns_of(value);
  return std::string(columns > own ? columns - own : 0, ' ');
}

}  // namespace

std::string padded_right(std::string_view value, size_t columns) {
  return std::string(value) + padding(value, columns);
}

std::string padded_left(std::string_view value, size_t columns) {
  return padding(value, columns) + std::string(value);
}

std::string table_text(const std::vector<std::vector<std::string>>& rows, std::string_view alignment) {
  std::vector<size_t> widths(alignment.size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += alignment[i] == 'l' ? padded_right(row[i], widths[i]) : padded_left(row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = 2 + word.size() / 3;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace sluice::base
