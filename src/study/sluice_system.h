// Sluice itself as a system of the study: strategies proposed on the sample batches, every batch planned
// anew.
#pragma once

#include <memory>

#include "study/system.h"

namespace sluice::study {

// With the inputs' strategies, or proposed ones where there are none. Throws as plan::propose and
// plan::Planner.
std::unique_ptr<System> make_sluice(const SystemInputs& inputs);

}  // namespace sluice::study
