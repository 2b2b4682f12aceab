// Reading TOML. Include only in .cpp files: the library is large.
#pragma once

#include <stdexcept>
#include <string>

// Some malformed texts fail assertions of the library: as faults of the text they are thrown, too.
#define TOML_ASSERT(condition) \
  (static_cast<bool>(condition) ? void() : throw std::invalid_argument("Error while parsing: not TOML"))
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wterminate"  // where the library may not throw
#endif
#include <toml++/toml.h>
#pragma GCC diagnostic pop

#include "base/json_fwd.h"

namespace sluice::base {

// Parses text; `name` stands in the InputError, with the line. Keys of more parts than kDeepestTomlKey are
// refused before the library sees them: it calls itself for each level.
inline constexpr int kDeepestTomlKey = 16;
toml::table parse_toml(const std::string& bytes, const std::string& name);

// As a file has it: a table's keys a line each, other values on one. It reads back to the same, also from a
// terminal (base/printable.h).
std::string toml_text(const toml::node& value);

// The same as JSON.
Json parse_toml_as_json(const std::string& bytes, const std::string& name);

}  // namespace sluice::base
