// A system whose layout is chosen once, whatever a batch holds: what it does in a step is a function of the
// batch's lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "study/system.h"

namespace sluice::study {

// By the lengths of a batch and the costs that its graph will be timed with; without step and sequences.
using StepOfLengths = std::function<SystemStep(const std::vector<int64_t>&, const cost::CostModel&)>;

// The sample batches that a layout is chosen by where trying each takes long: every fourth.
std::vector<std::vector<int64_t>> some_batches(const SystemInputs& inputs);

std::unique_ptr<System> fixed_layout(std::string configuration, cost::CostModel cost, StepOfLengths step_of);

}  // namespace sluice::study
