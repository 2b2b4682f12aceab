// Rotary positions in a config.json. For the model module's own files.
#pragma once

#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "model/families/reader.h"
#include "model/outline.h"

namespace sluice::model {

// Reads rope_theta and rope_scaling, or rope_parameters. With `by_type` the latter may differ between types
// of layers; the result is for layers without a window. InputError naming `name` and the key for types and
// keys that Sluice does not compute.
Rope rope_from_hugging_face(const base::Json& config, double absent_theta, bool by_type,
                            const std::string& name);
// The same for layers with a window, if the file has it or `absent_theta` is not 0; none: no difference.
std::optional<Rope> window_rope_from_hugging_face(Reader& config, double absent_theta);
// The value of rope_scaling; null without scaling.
base::Json rope_to_hugging_face(const Rope& rope);

}  // namespace sluice::model
