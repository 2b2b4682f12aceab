#include "plan/bubble.h"

#include <algorithm>

namespace sluice::plan {
namespace {

using cost::Wide;

constexpr int kPartBits = 20;
constexpr int64_t kWhole = int64_t{1} << kPartBits;
constexpr size_t kMostCounted = 48;  // micro-batches

int64_t divide_up(Wide value, Wide by) { return static_cast<int64_t>((value + by - 1) / by); }

}  // namespace

// All is rounded up, which weakens the bound.
Bubble::Bubble(const SchemeCost& scheme, int stage) : stages_below_(stage) {
  const int64_t forward = scheme.forward_parts(stage, kPartBits);
  if (stage == 0 || forward == 0 || scheme.scheme().cp > 1) return;
  const Wide below = Wide{stage} * forward;
  const int64_t ratio = divide_up((kWhole + Wide{stage - 1} * forward) << kPartBits, below);
  int64_t term = divide_up(Wide{kWhole} << kPartBits, below);
  for (int64_t sum = term; sum < kWhole << kPartBits && busy_parts_.size() < kMostCounted; sum += term) {
    busy_parts_.push_back(divide_up(Wide{sum} << kPartBits, Wide{kWhole} + sum));
    term = divide_up(Wide{term} * ratio, kWhole);
  }
}

Bubble::Most Bubble::most(int64_t end_ns, int64_t constant_ns) const {
  Most best;
  // The parts are concave in the count, so that what falls keeps falling; rounding aside.
  const int64_t rounding_ns = end_ns >> (kPartBits - 2);
  for (size_t i = 0; i < busy_parts_.size(); ++i) {
    const auto count = static_cast<int64_t>(i) + 1;
    // Cells are whole nanoseconds: α·u holds to two of them for each micro-batch and stage.
    const Wide least_ns = Wide{end_ns} + 2 * (count + stages_below_);
    const int64_t busy_ns = divide_up(least_ns * busy_parts_[i], kWhole) - count * constant_ns;
    if (busy_ns > best.busy_ns) best = {.busy_ns = busy_ns, .micro_batches = count};
    if (busy_ns + rounding_ns < best.busy_ns) return {std::min(best.busy_ns, end_ns), best.micro_batches};
  }
  const auto more = static_cast<int64_t>(busy_parts_.size()) + 1;
  const int64_t busy_ns = end_ns - more * constant_ns;
  if (busy_ns > best.busy_ns) best = {.busy_ns = busy_ns, .micro_batches = more};
  return {std::min(best.busy_ns, end_ns), best.micro_batches};
}

}  // namespace sluice::plan
