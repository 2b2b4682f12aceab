// Sluice itself as a system of the study: strategies proposed on the sample batches, every batch planned
// anew.
#pragma once

#include <memory>

#include "session/planning_task.h"
#include "study/system.h"

namespace sluice::study {

// What it plans with.
session::PlanningTask sluice_task(const SystemInputs& inputs);
// Plans as training does with the inputs' choices (session/candidates.h, session/planned_step.h), and throws
// as that does.
std::unique_ptr<System> make_sluice(const SystemInputs& inputs);

}  // namespace sluice::study
