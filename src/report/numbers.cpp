#include "report/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace sluice::report {

using base::text;

namespace {

constexpr const char* kSpace = "\u00a0";  // does not wrap

}  // namespace

std::string decimal(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string significant(double value, int most) {
  int digits = most;
  for (double bound = 10; digits > 0 && std::abs(value) >= bound * 0.9995; bound *= 10) --digits;
  return decimal(value, digits);
}

Unit duration_unit(double longest_ns) {
  if (longest_ns >= 1e9) return {1e9, "s"};
  if (longest_ns >= 1e6) return {1e6, "ms"};
  if (longest_ns >= 1e3) return {1e3, "µs"};
  return {1, "ns"};
}

std::string shown_duration(int64_t ns) {
  const int64_t seconds = (std::abs(ns) + 500'000'000) / 1'000'000'000;
  const auto two = [](int64_t value) { return text(value < 10 ? "0" : "", value); };
  if (seconds >= 3600)
    return text(seconds / 3600, kSpace, "h", kSpace, two(seconds / 60 % 60), kSpace, "min");
  if (seconds >= 100) return text(seconds / 60, kSpace, "min", kSpace, two(seconds % 60), kSpace, "s");
  if (ns == 0) return text("0", kSpace, "s");
  const auto value = static_cast<double>(ns);
  const Unit unit = duration_unit(std::abs(value) * 1.0005);  // 999.7 ms is 1.00 s
  return text(unit.scale == 1 ? text(ns) : significant(value / unit.scale, 2), kSpace, unit.name);
}

std::string shown_percent(double share) {
  const double percent = 100 * share;
  const int digits = std::abs(percent) >= 99.95 ? 0 : std::abs(percent) >= 0.995 ? 1 : 2;
  return text(percent == 0 ? "0" : decimal(percent, digits), kSpace, "%");
}

std::string shown_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return text(unit == 0 ? text(bytes) : significant(value, 2), kSpace, kUnits[unit]);
}

std::string shown_ratio(double ratio) { return text(significant(ratio, 2), "×"); }

std::string shown_rate(double per_second) {
  return text(base::human_count(std::llround(per_second)), kSpace, "tokens/s");
}

std::string counted(int64_t count, const std::string& noun) {
  return text(base::human_count(count), kSpace, noun, count == 1 ? "" : "s");
}

}  // namespace sluice::report
