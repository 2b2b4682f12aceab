// Models that planning knows by name: the sizes of public models, as their config.json files publish them
// (data/models.json), and the shapes of papers (model::named_shape).
#pragma once

#include <string>
#include <vector>

#include "model/shape.h"

namespace sluice::session {

// In the order of data/models.json, then those of papers.
std::vector<std::string> known_models();

// A name of known_models(), in any case; or a Hugging Face folder or config.json, which a path that exists
// is. InputError with the nearest name otherwise.
model::Shape model_to_plan(const std::string& name);

}  // namespace sluice::session
