// The number of a model's parameters.
#pragma once

#include <cstdint>

#include "model/model.h"

namespace sluice::model {

int64_t parameter_count(const Model& model);
// Parameters that a token uses: among experts, only those that it visits.
int64_t active_parameter_count(const Model& model);

}  // namespace sluice::model
