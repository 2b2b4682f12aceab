// JSON with keys under their former names.
#pragma once

#include <string_view>

#include "base/json_fwd.h"

namespace sluice::base {

// Replaces former keys in `json`, at any depth, by current ones: the table renames() lists them for the file
// format `where`, e.g. "sluice.calibration/1". An object with both names of a key keeps both.
void take_new_names(Json& json, std::string_view where);

}  // namespace sluice::base
