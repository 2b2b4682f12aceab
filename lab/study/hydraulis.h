// Hydraulis as published, and the steps of its ablation (Figure 16): the published proposal (Eq. 4), dispatch
// (Algorithm 1 with Eq. 2) and packing (Eq. 1). Timed as 1F1B without a split backward and without lanes.
// Pull and push run in Sluice's transfer rounds, which the published code does not have.
#pragma once

#include <memory>

#include "study/system.h"

namespace sluice::study {

// The constant c counts as in its released program (published::ConstantRule::kReleased). A pipeline's own
// load breaks ties of Algorithm 1, which is faster than as printed.
std::unique_ptr<System> make_hydraulis(const SystemInputs& inputs);
// "<" gives ties to the pipeline that holds the longest sequences, as printed.
std::unique_ptr<System> make_hydraulis_first(const SystemInputs& inputs);
// c counts once per sequence, as printed, although it occurs once per micro-batch: this overestimates short
// sequences.
std::unique_ptr<System> make_hydraulis_printed(const SystemInputs& inputs);

// Step (a): one homogeneous strategy, dispatch by Eq. 3, packed to the longest that fits. Step (b): packed by
// Eq. 1. Step (c): one heterogeneous strategy that holds the context. Step (d): all of Hydraulis, a strategy
// for each step. Each uses the strategy that is best on the sample batches.
enum class AblationStep { kDispatch, kPacking, kHeterogeneous, kDynamic };
std::unique_ptr<System> make_ablation(const SystemInputs& inputs, AblationStep step);

}  // namespace sluice::study
