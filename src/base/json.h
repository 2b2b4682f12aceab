// Reading JSON with errors that name file, key and expectation. Include only in .cpp files and in the
// headers of modules that speak JSON.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::base {

using Json = nlohmann::ordered_json;

// Parses text; `name` (a path, say) stands in the InputError. Values nested deeper than kDeepestJson are
// refused: the library's printer calls itself for each level.
inline constexpr int kDeepestJson = 100;
Json parse_json(const std::string& bytes, const std::string& name);
Json read_json(const std::filesystem::path& path);
void write_json(const std::filesystem::path& path, const Json& value);

// InputError unless value["schema"] is `schema`.
void require_schema(const Json& value, const std::string& schema, const std::string& name);

// Whether `value` is an integer that T can hold. JSON's booleans and 1.0 are not.
template <typename T>
bool holds_integer(const Json& value) {
  if (value.is_number_unsigned()) return std::in_range<T>(value.get<uint64_t>());
  return value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
}

// The value as text for a message: its beginning when it is long.
std::string excerpt(const Json& value);

// value[key] as T. InputError naming `name` and `key` when absent or of another type.
template <typename T>
T require(const Json& value, const std::string& key, const std::string& name) {
  if (!value.is_object() || !value.contains(key))
    throw InputError(text(name, ": key '", key, "' is missing"));
  const Json& found = value.at(key);
  const auto unexpected = [&] {
    return InputError(text(name, ": key '", key, "' has an unexpected value: ", excerpt(found)));
  };
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    // The library would cut floats and wrap integers that are too large.
    if (!holds_integer<T>(found)) throw unexpected();
  }
  try {
    return found.get<T>();
  } catch (const nlohmann::json::exception&) {
    throw unexpected();
  }
}

// value[key] as T, or `fallback` when absent or null.
template <typename T>
T get_or(const Json& value, const std::string& key, const T& fallback, const std::string& name) {
  if (!value.is_object() || !value.contains(key) || value.at(key).is_null()) return fallback;
  return require<T>(value, key, name);
}

}  // namespace sluice::base
