// Reading JSON with errors that name file, key and expectation. Headers that only name Json include
// base/json_fwd.h: the JSON library adds 2.5 s to the compilation of each file that includes it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_fwd.h"
#include "base/text.h"

namespace sluice::base {

// Parses text; `name` (a path, say) appears in the InputError. Values nested deeper than kDeepestJson are
// refused, because the library's printer recurses once per level.
inline constexpr int kDeepestJson = 100;
Json parse_json(const std::string& bytes, const std::string& name);
Json read_json(const std::filesystem::path& path);
void write_json(const std::filesystem::path& path, const Json& value);

// The value as text, on one line or with `indent` spaces per level. Bytes that are not UTF-8 (paths may have
// them) become U+FFFD.
std::string json_text(const Json& value, int indent = -1);

// InputError unless value["schema"] is `schema`.
void require_schema(const Json& value, const std::string& schema, const std::string& name);

// Whether `value` is an integer that T can hold. JSON's booleans and 1.0 are not.
template <typename T>
bool holds_integer(const Json& value) {
  if (value.is_number_unsigned()) return std::in_range<T>(value.get<uint64_t>());
  return value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
}

// The value as text for a message, cut short if it is long.
std::string excerpt(const Json& value);

// value[key], or null if value is not an object or lacks the key.
const Json* find(const Json& value, const std::string& key);

// InputError "NAME: key 'KEY' is missing: give EXPECTED", and "…is VALUE: give EXPECTED".
[[noreturn]] void refuse_without(const std::string& key, const std::string& expected,
                                 const std::string& name);
[[noreturn]] void refuse(const Json& value, const std::string& key, const std::string& expected,
                         const std::string& name);

template <typename T>
inline constexpr bool kIsList = false;
template <typename T>
inline constexpr bool kIsList<std::vector<T>> = true;

// Describes JSON that can be read as T: "a whole number within 32 bits".
template <typename T>
std::string kind_of() {
  if constexpr (std::is_same_v<T, Json>) {
    return "a value";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "a text in quotes";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_integral_v<T>) {
    return text("a whole number within ", 8 * sizeof(T), " bits");
  } else if constexpr (std::is_floating_point_v<T>) {
    return "a number";
  } else if constexpr (kIsList<T>) {
    return text("a list, each entry ", kind_of<typename T::value_type>());
  } else {
    return text("[", kind_of<typename T::first_type>(), ", ", kind_of<typename T::second_type>(), "]");
  }
}

// value[key] as T. If it is missing or of another type, InputError with `name`, `key`, the value and the
// expected type.
template <typename T>
T require(const Json& value, const std::string& key, const std::string& name) {
  const Json* found = find(value, key);
  if (found == nullptr) refuse_without(key, kind_of<T>(), name);
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    // The library would truncate floats and wrap around integers that are too large.
    if (!holds_integer<T>(*found)) refuse(*found, key, kind_of<T>(), name);
  }
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    refuse(*found, key, kind_of<T>(), name);
  }
}

// value[key] as T, or `fallback` when absent or null.
template <typename T>
T get_or(const Json& value, const std::string& key, const T& fallback, const std::string& name) {
  const Json* found = find(value, key);
  if (found == nullptr || found->is_null()) return fallback;
  return require<T>(value, key, name);
}

}  // namespace sluice::base
