#include "cost/table_figures.h"

namespace sluice::cost {

int64_t util_len_tokens(const CostModel& cost, const strategy::Scheme& scheme) {
  if (const SchemeTimes* known = cost.published(scheme)) return known->util_len_tokens;
  const Quadratic slowest = cost.stage_times(scheme, cost.slowest_stage(scheme));
  if (slowest.b == 0) return 0;
  return divide_nearest((Wide{slowest.c_ns} << Quadratic::kFractionBits) * 85, Wide{slowest.b} * 15);
}

bool is_derived(const CostModel& cost, const strategy::Scheme& scheme) {
  const SchemeTimes* known = cost.published(scheme);
  return known != nullptr && known->derived;
}

}  // namespace sluice::cost
