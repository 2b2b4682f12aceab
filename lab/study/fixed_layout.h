// A system whose layout is chosen once for all batches: its step is a function of the batch's
// lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "study/system.h"

namespace sluice::study {

// Arguments: a batch's lengths, and the costs that will time its graph. Result: without step and sequences.
using StepOfLengths = std::function<SystemStep(const std::vector<int64_t>&, const cost::CostModel&)>;

// Sample batches for choosing a layout if each trial takes long: every fourth.
std::vector<std::vector<int64_t>> some_batches(const SystemInputs& inputs);

std::unique_ptr<System> fixed_layout(std::string configuration, cost::CostModel cost, StepOfLengths step_of);

}  // namespace sluice::study
