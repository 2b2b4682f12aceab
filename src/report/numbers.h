// Numbers as a report shows them: three significant digits and a unit that does not wrap.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::report {

// With `digits` digits after the point.
std::string decimal(double value, int digits);
// With `most` digits after the point below 10, one less below 100, …
std::string significant(double value, int most);

std::string shown_duration(int64_t ns);     // 3.10 s, 842 ms, 12.3 µs, 12 min 05 s
std::string shown_percent(double share);    // 0.1234 -> 12.3 %; 0.0004 -> 0.04 %
std::string shown_bytes(int64_t bytes);     // 61.2 GiB
std::string shown_ratio(double ratio);      // 1.80×
std::string shown_rate(double per_second);  // 12,345 tokens/s
// "1 step", "2 steps", "1,000 steps".
std::string counted(int64_t count, const std::string& noun);

// A unit for a whole axis or column of durations, from nanoseconds.
struct Unit {
  double scale = 1;
  std::string name;
};
Unit duration_unit(double longest_ns);

}  // namespace sluice::report
