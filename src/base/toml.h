// Reading TOML. Include only in .cpp files: the library is large.
#pragma once

#include <stdexcept>
#include <string>

// Some malformed texts fail assertions of the library. Its assertions throw instead, as faults of the text.
#define TOML_ASSERT(condition) \
  (static_cast<bool>(condition) ? void() : throw std::invalid_argument("Error while parsing: not TOML"))
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wterminate"  // throwing assertions in noexcept functions
#endif
#include <toml++/toml.h>
#pragma GCC diagnostic pop

#include "base/json_fwd.h"

namespace sluice::base {

// Parses text; `name` appears in the InputError, with the line. Keys of more parts than kDeepestTomlKey are
// refused before the library sees them, because it recurses once per part.
inline constexpr int kDeepestTomlKey = 16;
toml::table parse_toml(const std::string& bytes, const std::string& name);

// TOML as a file has it: a line for each key of a table, any other value on one line. It reads back to the
// same value, even when it is copied from a terminal (base/printable.h).
std::string toml_text(const toml::node& value);

// Parses TOML and converts it to JSON.
Json parse_toml_as_json(const std::string& bytes, const std::string& name);

}  // namespace sluice::base
