// Sluice itself as a system of the study: strategies are proposed on the sample batches, and every batch is
// planned anew.
#pragma once

#include <memory>

#include "session/planning_task.h"
#include "study/system.h"

namespace sluice::study {

// The task that Sluice plans with.
session::PlanningTask sluice_task(const SystemInputs& inputs);
// Plans as training does with the inputs' choices (session/candidates.h, session/planned_step.h), and throws
// the same errors.
std::unique_ptr<System> make_sluice(const SystemInputs& inputs);

}  // namespace sluice::study
