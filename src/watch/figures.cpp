#include "watch/figures.h"

#include <algorithm>
#include <cmath>

namespace sluice::watch {
namespace {

using Unit = FigureTraits::Unit;

// In the order of Figure.
constexpr FigureTraits kTraits[] = {
    {"slowdown", Unit::kSlowdown, "computed over planned, relative to the ranks' median (operating.md)"},
    {"attention_slowdown", Unit::kSlowdown, "likewise, of cells that attention takes most of"},
    {"gemm_slowdown", Unit::kSlowdown, "likewise, of all other cells"},
    {"copy_slowdown", Unit::kSlowdown, "likewise, of copies to and from host memory"},
    {"update_slowdown", Unit::kSlowdown, "likewise, of the optimiser"},
    {"compute_ms", Unit::kTime, "in cells, without waiting"},
    {"host_ms", Unit::kTime, "neither inside nodes nor waiting"},
    {"wait_ms", Unit::kTime, "that its compute stream waited, for all that follows"},
    {"pull_wait_ms", Unit::kTime, "parameters"},
    {"push_wait_ms", Unit::kTime, "gradients on their way to their owners"},
    {"stage_wait_ms", Unit::kTime, "rows of other stages"},
    {"lane_wait_ms", Unit::kTime, "keys, values, heads or states of other lanes, inside cells"},
    {"fsdp_wait_ms", Unit::kTime, "parameters that lanes share, and sums of their gradients, inside cells"},
    {"tensor_wait_ms", Unit::kTime, "tensor-parallel ranks, inside cells"},
    {"copy_wait_ms", Unit::kTime, "host memory"},
    {"end_wait_ms", Unit::kTime, "all others' sums at the step's end"},
    {"awaited_ms", Unit::kTime,
     "that other machines' computing waited for it between cells, each rank counted for whom it waited for "
     "most, in the mean over the others, beyond what the plan has them wait and what it waited itself for a "
     "rank that is awaited more"},
    {"processors", Unit::kShare,
     "that its process kept busy; this and the following of the last second, or step"},
    {"run_delay_ms", Unit::kTime, "that its threads were ready and had no processor"},
    {"major_faults", Unit::kCount, "pages that had to be read"},
    {"resident_bytes", Unit::kCount, ""},
    {"disk_bytes", Unit::kCount, "read and written"},
    {"network_bytes", Unit::kCount, "of its machine, received and sent, loopback left out"},
    {"gpu_mhz", Unit::kCount, "of the streaming multiprocessors; this and the following by NVML"},
    {"gpu_watts", Unit::kCount, ""},
    {"gpu_celsius", Unit::kCount, ""},
    {"gpu_throttled", Unit::kCount, "NVML's bits of why clocks are held down; 0: they are not"},
    {"gpu_ecc_errors", Unit::kCount, "that could not be corrected, since the driver was loaded"},
    {"gpu_pcie_lanes", Unit::kCount, "in use"},
    {"nvlink_errors", Unit::kCount, "CRC and replay, since the driver was loaded"},
};
static_assert(std::size(kTraits) == kFigures);

constexpr std::array<Figure, kFigures> kAll = [] {
  std::array<Figure, kFigures> all{};
  for (size_t figure = 0; figure < kFigures; ++figure) all[figure] = static_cast<Figure>(figure);
  return all;
}();

double shown(int64_t value, Unit unit) {
  if (value == Sample::kUnknown) return kNotKnown;
  const double scale = unit == Unit::kCount ? 1 : 1e-6;  // ppm, or nanoseconds in milliseconds
  return static_cast<double>(value) * scale;
}

// Divides by the median of the known values. A single known value becomes NaN: it compares with nothing.
void make_relative(std::vector<double>& paces) {
  const auto known = std::ranges::count_if(paces, [](double pace) { return pace > 0; });
  for (double& pace : paces) pace = pace > 0 && known > 1 ? pace : kNotKnown;
  const double usual = median(paces);
  for (double& pace : paces) pace /= usual;
}

}  // namespace

const FigureTraits& traits(Figure figure) { return kTraits[static_cast<size_t>(figure)]; }

std::span<const Figure> all_figures() { return kAll; }

double median(std::span<const double> values) {
  std::vector<double> known;
  for (const double value : values) {
    if (!std::isnan(value)) known.push_back(value);
  }
  if (known.empty()) return kNotKnown;
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>((known.size() - 1) / 2);
  std::ranges::nth_element(known, middle);
  return *middle;
}

Figures::Figures(std::span<const Sample> of_ranks) {
  for (const Figure figure : kAll) {
    std::vector<double>& own = (*this)[figure];
    for (const Sample& sample : of_ranks) own.push_back(shown(sample[figure], traits(figure).unit));
    if (traits(figure).unit == Unit::kSlowdown) make_relative(own);
    if (std::ranges::all_of(own, [](double value) { return std::isnan(value); })) own.clear();
  }
}

}  // namespace sluice::watch
