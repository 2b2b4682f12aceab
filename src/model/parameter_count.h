// How many parameters a model has.
#pragma once

#include <cstdint>

#include "model/shape.h"

namespace sluice::model {

int64_t parameter_count(const Shape& shape);
// That a token passes: of experts those that it visits.
int64_t active_parameter_count(const Shape& shape);

}  // namespace sluice::model
