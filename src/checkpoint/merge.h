// Adapters of low rank on their way out, into the weights that they adapt.
#pragma once

#include "checkpoint/hugging_face.h"
#include "model/parameters.h"

namespace sluice::checkpoint {

// Values of the untuned model (model::untuned) from those of a tuned one: to every adapted matrix what its
// adapters add is added. Both tables outlive the result.
ParameterSource merged(const model::ParameterTable& plain, const model::ParameterTable& tuned,
                       ParameterSource source);

}  // namespace sluice::checkpoint
