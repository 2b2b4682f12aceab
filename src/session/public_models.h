// Models that planning knows by name: the sizes of public models, as their config.json files publish them
// (data/models.json), and the models of papers (model::named_model).
#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace sluice::session {

// Names in the order of data/models.json, then those of papers.
std::vector<std::string> known_models();

// The model of a name in known_models(), in any case, or of an existing path: a Hugging Face folder or a
// config.json. InputError with the nearest name otherwise.
model::Model model_to_plan(const std::string& name);

}  // namespace sluice::session
