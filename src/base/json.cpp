#include "base/json.h"

#include "base/file.h"

namespace sluice::base {

Json parse_json(const std::string& bytes, const std::string& name) {
  try {
    return Json::parse(bytes);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(text(name, " is not JSON: ", error.what()));
  }
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

void write_json(const std::filesystem::path& path, const Json& value) {
  write_file_atomically(path, value.dump(2) + "\n");
}

void require_schema(const Json& value, const std::string& schema, const std::string& name) {
  const auto found = get_or<std::string>(value, "schema", "", name);
  if (found != schema) {
    throw InputError(text(name, ": schema is '", found, "', expected '", schema, "'"));
  }
}

}  // namespace sluice::base
