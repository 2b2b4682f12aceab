// Run configurations as TOML.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace sluice::config {

// The author of a configuration. Old names (base/renames.h) are accepted in a file that a run wrote, and
// refused in a user's file with the current name.
enum class Origin { kUser, kRun };

// Parses TOML text, then applies each "section.key=value" of `overrides` in order (value as TOML, or as a
// bare string if it does not parse). InputError naming `name` (the file), line, key and the nearest known
// key. Values out of range are refused with their range. Files that keys name need not exist.
RunConfig parse_config(const std::string& toml, const std::string& name,
                       const std::vector<std::string>& overrides = {}, Origin origin = Origin::kUser);
// Reads a file. A config.toml beside a metrics.jsonl counts as a run's. Any other file is a user's and is
// checked by refuse_idle_keys, too.
RunConfig read_config(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

// The configuration as TOML that parses back to itself.
std::string to_toml(const RunConfig& config);

// The same for people: in the order of docs/formats.md, each key with its possible values and its meaning.
std::string described(const RunConfig& config);

}  // namespace sluice::config
