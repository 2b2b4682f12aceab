// Rotary positions in a config.json. For the model module's own files.
#pragma once

#include <string>

#include "base/json.h"
#include "model/shape.h"

namespace sluice::model {

// From rope_theta and rope_scaling, or from rope_parameters. InputError naming `name` and the key for types
// and keys that Sluice does not compute.
Rope rope_from_hugging_face(const base::Json& config, double absent_theta, const std::string& name);
// The value of rope_scaling; null without scaling.
base::Json rope_to_hugging_face(const Rope& rope);

}  // namespace sluice::model
