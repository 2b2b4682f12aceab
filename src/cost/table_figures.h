// What calibrations say of a scheme beside its times.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// The shortest micro-batch that keeps its ranks busy: the table's, otherwise where tokens take 85 % of the
// time of the slowest stage and its constant takes the rest.
int64_t util_len_tokens(const CostModel& cost, const strategy::Scheme& scheme);
// Whether its times come from a row that nobody published (cost/derived_rows.h).
bool is_derived(const CostModel& cost, const strategy::Scheme& scheme);

}  // namespace sluice::cost
