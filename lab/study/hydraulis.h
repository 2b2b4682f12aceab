// Hydraulis to the letter, and the steps of its ablation (Figure 16): the published proposal (Eq. 4),
// dispatch (Algorithm 1 on Eq. 2) and packing (Eq. 1), timed as 1F1B without a split backward and without
// lanes. The published system is given pull and push in Sluice's rounds, which its own code does not have.
#pragma once

#include <memory>

#include "study/system.h"

namespace sluice::study {

// The constant c is counted as its released program does (published::ConstantRule::kReleased). Ties of
// Algorithm 1 are broken by a pipeline's own load, which makes it faster than as printed.
std::unique_ptr<System> make_hydraulis(const SystemInputs& inputs);
// "<" gives ties to the pipeline that holds the longest sequences, as printed.
std::unique_ptr<System> make_hydraulis_first(const SystemInputs& inputs);
// c counts once a sequence, as printed, though it falls due once a micro-batch: short sequences then look
// dearer than they are.
std::unique_ptr<System> make_hydraulis_printed(const SystemInputs& inputs);

// (a) one homogeneous strategy, dispatch by Eq. 3, packed to the longest that fits; (b) packed by Eq. 1;
// (c) one heterogeneous strategy that holds the context; (d) all of Hydraulis: a strategy for each step.
// Each takes the strategy that is best on the sample batches.
enum class AblationStep { kDispatch, kPacking, kHeterogeneous, kDynamic };
std::unique_ptr<System> make_ablation(const SystemInputs& inputs, AblationStep step);

}  // namespace sluice::study
