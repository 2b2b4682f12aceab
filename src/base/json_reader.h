// The only JSON parser in the program: for files, lines of corpora, files that Python wrote, bodies of
// requests. It takes linear time for any text, even for objects with many keys, and does not recurse.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace sluice::base {

// kPython: NaN, Infinity and -Infinity are numbers, as in Python's json module, and numbers beyond a double's
// range become infinite. kStrict: RFC 8259, and each number must fit a double.
enum class JsonDialect : uint8_t { kStrict, kPython };

// Longer texts are refused; documents of corpora are cut off at this size, too.
inline constexpr int64_t kMostJsonBytes = int64_t{1} << 30;

// Why a text is not JSON, and where: the line and the column (in characters), both counted from 1.
struct JsonFault {
  int64_t line = 1;
  int64_t column = 1;
  std::string what;  // the reason and a way out
};

// Parses all of `bytes` into `value`, or returns the first fault. If a key occurs twice the last value
// counts, as in Python. A leading byte order mark is skipped. Values nested deeper than kDeepestJson
// (base/json.h) and texts longer than kMostJsonBytes are refused.
std::optional<JsonFault> read_json_text(std::string_view bytes, JsonDialect dialect, Json& value);

// The fault as a message: "NAME:LINE:COLUMN is not JSON: ...". If `name` already has a line ("FILE:17"):
// "NAME is not JSON at column COLUMN: ...".
std::string described(const JsonFault& fault, const std::string& name);

// Whether `bytes` are strict JSON.
bool is_json(std::string_view bytes);

// Like parse_json and read_json of base/json.h, for files that Python wrote: config.json may hold Infinity.
Json parse_python_json(std::string_view bytes, const std::string& name);
Json read_python_json(const std::filesystem::path& path);

}  // namespace sluice::base
