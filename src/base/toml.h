// Reading TOML. Include only in .cpp files: the library is large.
#pragma once

#include <toml++/toml.h>

#include <string>

#include "base/json.h"

namespace sluice::base {

// Parses text; `name` stands in the InputError, with the line. Keys of more parts than kDeepestTomlKey are
// refused before the library sees them: it calls itself for each level.
inline constexpr int kDeepestTomlKey = 16;
toml::table parse_toml(const std::string& bytes, const std::string& name);

// The same as JSON.
Json parse_toml_as_json(const std::string& bytes, const std::string& name);

}  // namespace sluice::base
