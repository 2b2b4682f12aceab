// The config.json of a model, for manifests, calibrations and exports.
#pragma once

#include "base/json_fwd.h"
#include "model/model.h"

namespace sluice::model {

// A config.json that reads back to the model without tuning (model/tuning.h): the one that the model was read
// from, or else LLaMA's. It may lack torch_dtype and max_position_embeddings, which no model has. REQUIRES: a
// model unchanged since it was read, or one that a LLaMA model can have.
base::Json config_json(const Model& model);

}  // namespace sluice::model
