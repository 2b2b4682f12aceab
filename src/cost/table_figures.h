// Figures of a scheme that calibrations hold beside its times.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// The shortest micro-batch that keeps its ranks busy: the table's, otherwise the one whose tokens take 85 %
// of the time of the slowest stage and whose constant takes the rest.
int64_t util_len_tokens(const CostModel& cost, const strategy::Scheme& scheme);
// Whether the scheme's times come from a derived row (cost/derived_rows.h).
bool is_derived(const CostModel& cost, const strategy::Scheme& scheme);

}  // namespace sluice::cost
