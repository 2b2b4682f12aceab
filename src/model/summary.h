// A model in words.
#pragma once

#include <string>

#include "model/model.h"

namespace sluice::model {

// "32 layers, hidden 4096".
std::string size_text(const Model& model);
// One line with the sizes of all parts: "6.7B parameters: 32 layers, hidden 4096, heads 32 …".
std::string summary(const Model& model);

}  // namespace sluice::model
