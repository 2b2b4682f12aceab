// The positions that a model was made for, and a note if more are used.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_fwd.h"

namespace sluice::session {

// The positions in the config.json of a Hugging Face folder, also in the text part of a multimodal model; 0:
// not given.
int64_t positions_of(const base::Json& config);

// A line for the user if `tokens` exceed the model's positions; else empty. The line names the setting with
// so many tokens, `what`: "--context-length".
std::string positions_note(int64_t positions, int64_t tokens, const std::string& what);

}  // namespace sluice::session
