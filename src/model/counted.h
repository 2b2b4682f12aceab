// Models whose costs are counted from the fields of their config.json and that nobody here computes: mixtures
// of experts, latent attention, LLaMA-like decoders with more biases. Planning and simulating need no more.
//
// Parameters are those of transformers' classes; work and bytes follow from widths (model/derive.h). Heads
// that predict further tokens (num_nextn_predict_layers) are not counted. A model_type that is not in the
// registry of counted.cpp is read as a decoder with RMS norms and a gated MLP, provided that every key of its
// file is known.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::model {

// A shape of Family::kCounted. InputError naming `name`, the key and the value for what decides costs and is
// not known.
Shape counted_from_hugging_face(const base::Json& config, const std::string& name);

// A config.json that reads back to the same shape: its key "computed" is false, so that no other family takes
// it. REQUIRES: Family::kCounted.
base::Json counted_to_hugging_face(const Shape& shape);

}  // namespace sluice::model
