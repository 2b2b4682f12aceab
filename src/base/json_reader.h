// The one reader of JSON: files, lines of corpora, folders that Python wrote and bodies of requests. It takes
// linear time for any text, objects of many keys included, and calls itself for nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace sluice::base {

// kPython: NaN, Infinity and -Infinity are numbers, as Python's json module writes and reads them, and
// numbers beyond a double's range are infinite. kStrict: RFC 8259, and numbers that a double holds.
enum class JsonDialect : uint8_t { kStrict, kPython };

// A text is refused beyond it; documents of corpora are cut off there, too.
inline constexpr int64_t kMostJsonBytes = int64_t{1} << 30;

// Why a text is no JSON, and where: the line and, in characters, the column, both from 1.
struct JsonFault {
  int64_t line = 1;
  int64_t column = 1;
  std::string what;  // with a way out
};

// Reads the whole of `bytes` into `value`, or says why not. Of a key that stands twice the last value counts,
// as for Python. A byte order mark in front is passed over; values deeper than kDeepestJson (base/json.h) and
// texts beyond kMostJsonBytes are refused.
std::optional<JsonFault> read_json_text(std::string_view bytes, JsonDialect dialect, Json& value);

// The fault as InputError puts it: "NAME:LINE:COLUMN is not JSON: WHAT", and with a place ("FILE:17") as
// `name` "NAME is not JSON at column COLUMN: WHAT".
std::string described(const JsonFault& fault, const std::string& name);

// Whether `bytes` are JSON in the strict sense.
bool is_json(std::string_view bytes);

// As parse_json and read_json of base/json.h, for what Python wrote: config.json, for one, may hold Infinity.
Json parse_python_json(std::string_view bytes, const std::string& name);
Json read_python_json(const std::filesystem::path& path);

}  // namespace sluice::base
