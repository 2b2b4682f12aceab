// Keys and values of run configurations under their old names (base/renames.h). Include only in
// .cpp files.
#pragma once

#include <string>

#include "base/toml.h"

namespace sluice::config {

// InputError naming each old key or value in `root` with its current name.
void refuse_old_names(const toml::table& root, const std::string& file);

// Gives old keys and values their current names. If a table has both names of a key, the new one counts.
void translate_old_names(toml::table& root);

}  // namespace sluice::config
