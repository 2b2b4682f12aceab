// Merges low-rank adapters into the matrices that they adapt, for exports.
#pragma once

#include "checkpoint/hugging_face.h"
#include "model/parameters.h"

namespace sluice::checkpoint {

// Values of the untuned model (model::untuned), computed from those of a tuned one: each adapted matrix plus
// its adapters' products. Both tables outlive the result.
ParameterSource merged(const model::ParameterTable& plain, const model::ParameterTable& tuned,
                       ParameterSource source);

}  // namespace sluice::checkpoint
