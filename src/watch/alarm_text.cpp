#include "watch/alarm_text.h"

#include <cmath>
#include <cstdio>
#include <vector>

#include "base/text.h"

namespace sluice::watch {
namespace {

using base::text;

std::string two_digits(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.2f", value);
  return digits;
}

// A figure that is mentioned if it differs enough from the ranks' median.
struct Oddity {
  Figure figure;
  // A value differs beyond usual · factor + margin: above if factor >= 1, below if factor < 1.
  double factor;
  double margin;
  const char* words;  // "its … is", then both values
};
constexpr Oddity kOddities[] = {
    {Figure::kAttentionSlowdown, 1.1, 0, "its attention's slowdown is"},
    {Figure::kGemmSlowdown, 1.1, 0, "its GEMMs' slowdown is"},
    {Figure::kProcessors, 0.85, 0, "processors that its process kept busy are"},
    {Figure::kRunDelay, 2, 20, "milliseconds that its threads were ready without a processor are"},
    {Figure::kMajorFaults, 10, 100, "pages that it had to read are"},
    {Figure::kDisk, 4, 64e6, "bytes that it moved to and from disks are"},
    {Figure::kGpuClock, 0.95, 0, "its GPU's clock in MHz is"},
    {Figure::kGpuTemperature, 1, 8, "its GPU's temperature is"},
    {Figure::kGpuThrottled, 1, 0.5, "NVML's bits of why its GPU's clock is held down are"},
    {Figure::kGpuEccErrors, 1, 0.5, "its GPU's uncorrected memory errors are"},
    {Figure::kGpuPcieLanes, 0.9, 0, "its GPU's PCIe lanes in use are"},
    {Figure::kGpuNvlinkErrors, 10, 10, "its GPU's NVLink errors are"},
};

bool is_odd(const Oddity& oddity, double value, double usual) {
  const double limit = usual * oddity.factor + oddity.margin;
  return oddity.factor < 1 ? value < limit : value > limit;
}

std::string what_it_does(const Alarm& alarm) {
  const std::string score = two_digits(alarm.score);
  const std::string over = text(" over ", Detector::Options{}.window, " steps");
  switch (alarm.cause) {
    case Cause::kSlowdown:
      return text("is slow: for what it computes it has taken ", score, " times as long as the other ranks",
                  over, ", which wait for it");
    case Cause::kCopies:
      return text("copies slowly: to and from host memory it has taken ", score,
                  " times as long as the other ranks", over);
    case Cause::kHost:
      return text("holds steps up outside their nodes: with planning, reading and writing it has taken ",
                  two_digits(100 * (alarm.score - 1)), " % of a step more than the other ranks", over);
    case Cause::kLink:
      return text("has a slow link: for its messages the others have waited ",
                  two_digits(100 * (alarm.score - 1)),
                  " % of a step more than for other ranks' and than planned", over);
  }
  return "";
}

const char* way_out(Cause cause) {
  switch (cause) {
    case Cause::kSlowdown: return "look at its machine's other load, clocks and temperature";
    case Cause::kCopies: return "look at its PCIe link and who else uses its host memory";
    case Cause::kHost: return "look at its disks, and at what else its processors do";
    case Cause::kLink: return "look at its network adapter, cable and switch port";
  }
  return "";
}

std::string no_longer(const Alarm& alarm) {
  switch (alarm.cause) {
    case Cause::kSlowdown: return text("is no longer slow: its slowdown is ", two_digits(alarm.score));
    case Cause::kCopies: return "copies like the others again";
    case Cause::kHost: return "no longer holds steps up outside their nodes";
    case Cause::kLink: return "is no longer waited for: its link is like the others'";
  }
  return "";
}

}  // namespace

std::string evidence(const Figures& figures, size_t rank) {
  std::vector<std::string> found;
  for (const Oddity& oddity : kOddities) {
    const std::vector<double>& values = figures[oddity.figure];
    if (rank >= values.size() || std::isnan(values[rank])) continue;
    const double usual = median(values);
    if (!is_odd(oddity, values[rank], usual)) continue;
    found.push_back(text(oddity.words, " ", two_digits(values[rank]), ", the others' ", two_digits(usual)));
  }
  return base::join(found, "; ");
}

std::string to_text(const Detector::Change& change, const Figures& figures, const Cost& cost) {
  const Alarm& alarm = change.alarm;
  if (!change.begins) return text("rank ", alarm.rank, " ", no_longer(alarm));
  const std::string costs =
      cost.step_ns > 0
          ? text("; steps like this one take ", base::human_duration(cost.step_ns), " by their plan, ",
                 base::human_duration(cost.without_ns), " were it like the others")
          : "";
  const std::string why = evidence(figures, static_cast<size_t>(alarm.rank));
  return text("rank ", alarm.rank, " ", what_it_does(alarm), ", since step ", alarm.since + 1, costs,
              why.empty() ? "" : "; ", why, ": ", way_out(alarm.cause));
}

}  // namespace sluice::watch
