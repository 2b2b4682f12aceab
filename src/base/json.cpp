#include "base/json.h"

#include <cmath>

#include "base/file.h"
#include "base/utf8.h"

namespace sluice::base {

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string excerpt(const Json& value) {
  // The library prints NaN and infinities as null.
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return text(value.get<double>());
  return beginning(json_text(value));
}

const Json* find(const Json& value, const std::string& key) {
  const auto found = value.find(key);  // end() if value is not an object
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
