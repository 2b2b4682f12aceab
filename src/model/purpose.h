// What a step runs the model for.
#pragma once

#include <cstdint>

namespace sluice::model {

// Evaluation pulls and goes forward; it keeps nothing and has no gradients.
enum class Purpose : uint8_t { kTrain, kEvaluate };

}  // namespace sluice::model
