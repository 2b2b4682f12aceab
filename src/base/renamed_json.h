// JSON that was written under names of before.
#pragma once

#include <string_view>

#include "base/json_fwd.h"

namespace sluice::base {

// Gives keys of `json`, and of all within it, their names of now: those that renames() has for the file
// `where`, as "sluice.calibration/1". An object that has both names of a key keeps both.
void take_new_names(Json& json, std::string_view where);

}  // namespace sluice::base
