#include "base/json.h"

#include <algorithm>

#include "base/file.h"
#include "base/utf8.h"

namespace sluice::base {

namespace {

// "[json.exception.parse_error.101] parse error at line 1, …" -> "parse error at line 1, …"
std::string_view without_library_name(std::string_view message) {
  const size_t end = message.find("] ");
  return message.starts_with('[') && end != std::string_view::npos ? message.substr(end + 2) : message;
}

// How many lists and objects stand inside one another.
int64_t depth_of(std::string_view bytes) {
  int64_t depth = 0;
  int64_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      continue;
    }
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest;
}

}  // namespace

Json parse_json(const std::string& bytes, const std::string& name) {
  const int64_t depth = depth_of(bytes);
  if (depth > kDeepestJson) {
    throw InputError(
        text(name, ": ", depth, " values stand inside one another: give at most ", kDeepestJson));
  }
  try {
    return Json::parse(bytes);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(
        text(name, " is not JSON: ", beginning(without_library_name(error.what())), ": correct it"));
  }
}

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string excerpt(const Json& value) { return beginning(json_text(value)); }

const Json* find(const Json& value, const std::string& key) {
  const auto found = value.find(key);  // the end for what is no object
  return found == value.end() ? nullptr : &*found;
}

void refuse_without(const std::string& key, const std::string& expected, const std::string& name) {
  throw InputError(text(name, ": key '", key, "' is missing: give ", expected));
}

void refuse(const Json& value, const std::string& key, const std::string& expected, const std::string& name) {
  throw InputError(text(name, ": key '", key, "' is ", excerpt(value), ": give ", expected));
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

void write_json(const std::filesystem::path& path, const Json& value) {
  write_file_atomically(path, json_text(value, 2) + "\n");
}

void require_schema(const Json& value, const std::string& schema, const std::string& name) {
  const auto found = get_or<std::string>(value, "schema", "", name);
  if (found != schema) {
    throw InputError(text(name, ": schema is '", found, "': give a file of schema '", schema, "'"));
  }
}

}  // namespace sluice::base
