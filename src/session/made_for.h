// How many positions a model was made for, and what is said where it is used beyond them.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_fwd.h"

namespace sluice::session {

// As the config.json of a Hugging Face folder says, also in the text part of a model of several; 0: it does
// not.
int64_t positions_of(const base::Json& config);

// A line where `tokens` are more than the model has positions for; else empty. `what` has so many:
// "--context-length".
std::string positions_note(int64_t positions, int64_t tokens, const std::string& what);

}  // namespace sluice::session
