// What each rank says of a step beside its part of the work: how fast it was for what was planned, what it
// waited for, how its machine was. A new figure is a value here and a row in figures.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace sluice::watch {

enum class Figure : uint8_t {
  kSlowdown,
  kAttentionSlowdown,
  kGemmSlowdown,
  kCopySlowdown,
  kUpdateSlowdown,
  kCompute,
  kHost,
  kWait,
  kPullWait,
  kPushWait,
  kStageWait,
  kLaneWait,
  kFsdpWait,
  kTensorWait,
  kCopyWait,
  kEndWait,
  kAwaited,
  kProcessors,
  kRunDelay,
  kMajorFaults,
  kResident,
  kDisk,
  kNetwork,
  kGpuClock,
  kGpuPower,
  kGpuTemperature,
  kGpuThrottled,
  kGpuEccErrors,
  kGpuPcieLanes,
  kGpuNvlinkErrors,
};
inline constexpr size_t kFigures = 30;

struct FigureTraits {
  // What its whole numbers count. Paces are shown relative to the median of the ranks that know theirs.
  enum class Unit : uint8_t { kSlowdown, kTime, kShare, kCount };  // ppm, nanoseconds, ppm, one

  const char* key;  // of metrics.jsonl, behind "rank_"; times are shown there in milliseconds
  Unit unit;
  const char* meaning;
};
const FigureTraits& traits(Figure figure);
// In the order of a line.
std::span<const Figure> all_figures();

// One rank's own. Trivial to send.
class Sample {
 public:
  static constexpr int64_t kUnknown = -1;

  Sample() { values_.fill(kUnknown); }
  int64_t& operator[](Figure figure) { return values_[static_cast<size_t>(figure)]; }
  int64_t operator[](Figure figure) const { return values_[static_cast<size_t>(figure)]; }

 private:
  std::array<int64_t, kFigures> values_;
};

// All ranks', as they are shown: by rank, NaN where a rank does not know; empty where none does.
class Figures {
 public:
  Figures() = default;
  explicit Figures(std::span<const Sample> of_ranks);

  std::vector<double>& operator[](Figure figure) { return by_figure_[static_cast<size_t>(figure)]; }
  const std::vector<double>& operator[](Figure figure) const {
    return by_figure_[static_cast<size_t>(figure)];
  }
  size_t ranks() const {
    return std::ranges::max_element(by_figure_, {}, &std::vector<double>::size)->size();
  }

 private:
  std::array<std::vector<double>, kFigures> by_figure_;
};

inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

// Of the values that are known, of two in the middle the lower one: of two ranks the faster is what the other
// is compared with. NaN where none is.
double median(std::span<const double> values);

}  // namespace sluice::watch
