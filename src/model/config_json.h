// The config.json of a shape: what manifests, calibrations and exports say of a model.
#pragma once

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::model {

// A config.json that reads back to the shape, tuning apart (model/tuning.h): the one that it was read from,
// or else LLaMA's. It may lack the keys that no shape has, torch_dtype and max_position_embeddings. REQUIRES:
// a shape that was not changed since it was read, or one that a LLaMA model has.
base::Json config_json(const Shape& shape);

}  // namespace sluice::model
