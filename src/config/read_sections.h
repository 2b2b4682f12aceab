// The sections of a run's configuration file, each with its keys and their ranges.
#pragma once

#include <string>

#include "config/run_config.h"
#include "config/toml_section.h"

namespace sluice::config {

// InputError as parse_config; `name`: the file.
RunConfig read_sections(const toml::table& root, const std::string& name);

}  // namespace sluice::config
