// Prices of a model that nobody measured, on a machine where another one was: a teacher's, a critic's or a
// reward model's beside those of the trained model.
#pragma once

#include <span>

#include "cost/analytic.h"
#include "cost/cost_model.h"

namespace sluice::cost {

// Both models are counted at the same `rates`; what measuring the other one came to over its count corrects
// each coefficient of this one: of blocks together, and of either end. Links, host and optimiser are the
// machine's. At rates in proportion to the machine's own the result is what those rates come to. A degree that
// was not measured is corrected as the nearest that was; prices by scheme (cost/published_table.h) say nothing
// of operations, and correct nothing. REQUIRES: as analytic_options.
CostModel::Options transferred_options(const CostModel::Options& measured, const model::Shape& shape,
                                       const Rates& rates, const AnalyticMemory& memory,
                                       std::span<const int> tp_degrees);

}  // namespace sluice::cost
