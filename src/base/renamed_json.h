// JSON with keys under their old names.
#pragma once

#include <string_view>

#include "base/json_fwd.h"

namespace sluice::base {

// Renames the old keys of `json`, at any depth, to the current names that renames() has for the file `where`,
// such as "sluice.calibration/1". An object that has both names of a key keeps both.
void take_new_names(Json& json, std::string_view where);

}  // namespace sluice::base
