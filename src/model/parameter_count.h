// The number of a model's parameters.
#pragma once

#include <cstdint>

#include "model/shape.h"

namespace sluice::model {

int64_t parameter_count(const Shape& shape);
// Parameters that a token uses: among experts, only those that it visits.
int64_t active_parameter_count(const Shape& shape);

}  // namespace sluice::model
