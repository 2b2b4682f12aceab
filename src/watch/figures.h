// Measurements of each rank in a step besides its share of the work: its speed compared with the plan, its
// waits, and its machine's state. To add a figure, add a value here and a row in figures.cpp.
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
  // The unit of a figure's integers. Slowdowns are shown relative to the median of the ranks that have one.
  enum class Unit : uint8_t { kSlowdown, kTime, kShare, kCount };  // ppm, ns, ppm, units

  const char* key;  // in metrics.jsonl, after "rank_"; times are in milliseconds there
  Unit unit;
  const char* meaning;
};
const FigureTraits& traits(Figure figure);
// In the order in which a line lists them.
std::span<const Figure> all_figures();

// One rank's figures. Trivially copyable, so that ranks can exchange them.
class Sample {
 public:
  static constexpr int64_t kUnknown = -1;

  Sample() { values_.fill(kUnknown); }
  int64_t& operator[](Figure figure) { return values_[static_cast<size_t>(figure)]; }
  int64_t operator[](Figure figure) const { return values_[static_cast<size_t>(figure)]; }

 private:
  std::array<int64_t, kFigures> values_;
};

// All ranks' figures in the units shown: by rank, NaN where unknown; empty if unknown on all ranks.
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

// The median of the known values, the lower one of two in the middle: of two ranks, the slower is compared
// with the faster. NaN if no value is known.
double median(std::span<const double> values);

}  // namespace sluice::watch
