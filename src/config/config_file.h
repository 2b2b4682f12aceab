// Run configurations as TOML.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace sluice::config {

// The author of a configuration. Old names (base/renames.h) are read in a file that a run wrote. In a user's
// file they are refused with the current name.
enum class Origin { kUser, kRun };

// Parses TOML text; then each "section.key=value" of `overrides` in order (value as TOML, or as a bare
// string when that does not parse). InputError naming `name` (the file), line, key and the nearest known key;
// values out of range are refused with their range. REQUIRES nothing of the files that it names.
RunConfig parse_config(const std::string& toml, const std::string& name,
                       const std::vector<std::string>& overrides = {}, Origin origin = Origin::kUser);
// A config.toml beside a metrics.jsonl is a run's. InputError, too, as refuse_idle_keys (idle_keys.h) of a user's
// file.
RunConfig read_config(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

// The configuration as TOML that parses back to itself.
std::string to_toml(const RunConfig& config);

// The same for people: in the order of docs/formats.md, each key with what it may be and what it means.
std::string described(const RunConfig& config);

}  // namespace sluice::config
