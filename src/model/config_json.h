// The config.json of a shape, for manifests, calibrations and exports.
#pragma once

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::model {

// A config.json that reads back to the shape without tuning (model/tuning.h): the one that the shape was read
// from, or else LLaMA's. It may lack torch_dtype and max_position_embeddings, which no shape has. REQUIRES: a
// shape unchanged since it was read, or one that a LLaMA model can have.
base::Json config_json(const Shape& shape);

}  // namespace sluice::model
