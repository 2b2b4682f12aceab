// Sluice itself as a system of the study: strategies are proposed on the sample batches, and every batch is
// planned anew.
#pragma once

#include <memory>

#include "study/system.h"

namespace sluice::study {

// The options that Sluice plans with.
plan::PlannerOptions sluice_options(const SystemInputs& inputs);
// Plans as training does with the inputs' options (session/candidates.h, session/planned_step.h), and throws
// the same errors.
std::unique_ptr<System> make_sluice(const SystemInputs& inputs);

}  // namespace sluice::study
