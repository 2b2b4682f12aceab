#include "plan/bubble.h"

#include <algorithm>

namespace sluice::plan {
namespace {

using cost::Wide;

constexpr int kPartBits = SchemeFloors::kPartBits;
constexpr size_t kMostCounted = 48;  // micro-batches

int64_t divide_up(Wide value, Wide by) { return static_cast<int64_t>((value + by - 1) / by); }

}  // namespace

// Everything is rounded up, which weakens the bound.
Bubble::Bubble(const SchemeCost& scheme, int stage, std::span<const int64_t> lengths)
    : stages_below_(stage), fullest_ns_(scheme.floors().fullest_ns(stage, lengths)) {
  busy_parts_.push_back(0);
  spare_parts_.push_back(SchemeFloors::kWholePart);
  const int64_t forward = scheme.floors().forward_parts(stage);
  if (stage == 0 || forward == 0) return;
  const Wide below = Wide{stage} * forward;
  const int64_t ratio = divide_up((SchemeFloors::kWholePart + Wide{stage - 1} * forward) << kPartBits, below);
  int64_t term = divide_up(Wide{SchemeFloors::kWholePart} << kPartBits, below);
  for (int64_t sum = term; sum < SchemeFloors::kWholePart << kPartBits && busy_parts_.size() <= kMostCounted;
       sum += term) {
    busy_parts_.push_back(divide_up(Wide{sum} << kPartBits, Wide{SchemeFloors::kWholePart} + sum));
    spare_parts_.push_back(
        divide_up(Wide{SchemeFloors::kWholePart} << kPartBits, Wide{SchemeFloors::kWholePart} + sum));
    term = divide_up(Wide{term} * ratio, SchemeFloors::kWholePart);
  }
}

Bubble::Most Bubble::most(int64_t end_ns, int64_t constant_ns) const {
  Most best;
  // The time left is concave in the count, so once it falls it keeps falling, apart from rounding.
  const int64_t rounding_ns = end_ns >> (kPartBits - 2);
  size_t growing = 0;  // k: the more micro-batches there are, the longer they grow
  for (int64_t count = 1; count <= static_cast<int64_t>(kMostCounted); ++count) {
    // Cells are whole nanoseconds: α·u holds to two of them for each micro-batch and stage.
    const Wide least_ns = Wide{end_ns} + 2 * (count + stages_below_);
    const auto busy_with = [&](size_t k) {
      const Wide flat_ns = (count - static_cast<int64_t>(k)) * Wide{fullest_ns_};
      return divide_up(least_ns * busy_parts_[k] + flat_ns * spare_parts_[k], SchemeFloors::kWholePart);
    };
    int64_t all_ns = busy_with(growing);
    while (growing + 1 < busy_parts_.size() && static_cast<int64_t>(growing) < count) {
      const int64_t next_ns = busy_with(growing + 1);
      if (next_ns > all_ns) break;
      all_ns = next_ns;
      ++growing;
    }
    const int64_t busy_ns = std::min(all_ns, end_ns) - count * constant_ns;
    if (busy_ns > best.busy_ns) best = {.busy_ns = busy_ns, .micro_batches = count};
    if (all_ns >= end_ns || busy_ns + rounding_ns < best.busy_ns) return best;
  }
  const auto more = static_cast<int64_t>(kMostCounted) + 1;
  const int64_t busy_ns = end_ns - more * constant_ns;
  if (busy_ns > best.busy_ns) best = {.busy_ns = busy_ns, .micro_batches = more};
  return best;
}

}  // namespace sluice::plan
