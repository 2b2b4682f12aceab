// The purpose for which a step runs the model.
#pragma once

#include <cstdint>

namespace sluice::model {

// Evaluation pulls parameters and runs forwards; it keeps no activations and makes no gradients.
enum class Purpose : uint8_t { kTrain, kEvaluate };

}  // namespace sluice::model
