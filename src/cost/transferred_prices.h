// Prices of a model that was not measured, on a machine where another model was: a teacher's, a critic's or a
// reward model's beside those of the trained model.
#pragma once

#include <span>

#include "cost/analytic.h"
#include "cost/cost_model.h"

namespace sluice::cost {

// Both models are counted at the same `rates`. The measured model's coefficients over its counted ones
// correct those of this model: of blocks together, and of either end. Links, host and optimizer are the
// machine's. Rates in proportion to the machine's own give the machine's own prices. A TP degree that was not
// measured is corrected as the nearest that was. Prices by scheme (cost/published_table.h) say nothing of
// operations, and correct nothing. REQUIRES: as analytic_options.
CostModel::Options transferred_options(const CostModel::Options& measured, const model::Model& model,
                                       const Rates& rates, const AnalyticMemory& memory,
                                       std::span<const int> tp_degrees);

}  // namespace sluice::cost
