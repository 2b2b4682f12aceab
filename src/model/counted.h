// Models whose costs are counted from their config.json's fields but which Sluice does not compute: mixtures
// of experts, latent attention, LLaMA-like decoders with more biases. Planning and simulating need no more.
//
// Parameters are those of transformers' classes; work and bytes follow from widths (model/derive.h). Heads
// that predict further tokens (num_nextn_predict_layers) are not counted. A model_type that is not in the
// registry of counted.cpp is read as a decoder with RMS norms and a gated MLP, provided that every key of its
// file is known.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "model/outline.h"

namespace sluice::model {

// An outline that is only counted. Its config.json has "computed": false, so that no family reads it.
// InputError naming `name`, the key and the value if a key or value that affects costs is unknown.
Outline counted_from_hugging_face(const base::Json& config, const std::string& name);

}  // namespace sluice::model
