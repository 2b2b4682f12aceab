// Keys and values of run configurations by the names that they had before (base/renames.h). Include only in
// .cpp files.
#pragma once

#include <string>

#include "base/toml.h"

namespace sluice::config {

// InputError naming each old key or value that stands in `root`, and what it is called now.
void refuse_old_names(const toml::table& root, const std::string& file);

// Gives them their names of now. Where a table has both names of a key, the new one counts.
void translate_old_names(toml::table& root);

}  // namespace sluice::config
